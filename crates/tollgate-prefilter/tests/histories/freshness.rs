//! From when on a state may be forgotten.

use std::time::Duration;

use fastrand::Rng;
use proptest::prelude::*;
use tollgate_core::{Quota, Tick};
use tollgate_prefilter::{Grant, LeaseQuery, LeaseTerms, ReturnedLease};
use tollgate_test_reference::{BucketGrantor, BucketState};

/// A grantor, and the burst of its quota.
pub(crate) fn grantor() -> impl Strategy<Value = (BucketGrantor, u64)> {
    let rates = prop::sample::select(vec![7_u64, 97, 1_000, 999_983]);
    (rates, 1..=3_u64).prop_map(|(rate, seconds)| {
        let quota = Quota::gcra(rate, Duration::from_secs(seconds)).burst(rate.max(30));
        let terms = LeaseTerms::new(&quota, 500).expect("it is granted");
        let grantor = BucketGrantor::new(&quota, terms).expect("a bucket");
        (grantor, quota.limit())
    })
}

fn query(rng: &mut Rng, grants: &mut Vec<ReturnedLease>) -> LeaseQuery {
    let returned = (!grants.is_empty() && rng.bool()).then(|| {
        let grant = grants.swap_remove(rng.usize(0..grants.len()));
        ReturnedLease {
            size: grant.size,
            left: rng.u64(0..=grant.size),
            generation: grant.generation,
        }
    });
    let (tracked, scheduled) = (rng.u64(0..100), rng.u64(0..100));
    LeaseQuery {
        returned,
        tracked,
        scheduled,
    }
}

fn grant(grants: &mut Vec<ReturnedLease>, grant: Option<Grant>) {
    if let Some(Grant::Tracked {
        units, generation, ..
    }) = grant
    {
        grants.push(ReturnedLease {
            size: units,
            left: units,
            generation,
        });
    }
}

/// A state after a history, what is still out of it, and when it was last written.
pub(crate) fn history(
    grantor: &BucketGrantor,
    rng: &mut Rng,
) -> (BucketState, Vec<ReturnedLease>, Tick) {
    let (mut state, mut grants) = (BucketState::default(), Vec::new());
    let mut now = 1_700_000_000_000_000;
    for _ in 0..rng.usize(1..40) {
        now += [0, 1_000, 500_000, 6_000_000][rng.usize(0..4)] * rng.u64(0..3);
        let query = query(rng, &mut grants);
        let (_, granted) = grantor.acquire(&mut state, now, rng.u64(0..9), &query);
        grant(&mut grants, granted);
    }
    (state, grants, now)
}

proptest! {
    #[test]
    fn a_fresh_state_answers_like_one_that_was_forgotten(
        (grantor, _) in grantor(),
        seed in any::<u64>(),
        later in prop::sample::select(vec![0_u64, 1, 1_000_000, 30_000_000]),
    ) {
        let mut rng = Rng::with_seed(seed);
        let (mut kept, mut grants, written) = history(&grantor, &mut rng);
        let mut forgotten = BucketState::default();
        let mut now = grantor.fresh_at(&kept).max(written) + later;
        for _ in 0..20 {
            let (cost, query) = (rng.u64(0..9), query(&mut rng, &mut grants));
            let answer = grantor.acquire(&mut kept, now, cost, &query);
            prop_assert_eq!(answer, grantor.acquire(&mut forgotten, now, cost, &query));
            grant(&mut grants, answer.1);
            now += rng.u64(0..2_000_000);
        }
    }

    #[test]
    fn a_tick_earlier_it_answers_otherwise((grantor, _) in grantor(), seed in any::<u64>()) {
        let (mut kept, _, written) = history(&grantor, &mut Rng::with_seed(seed));
        let fresh = grantor.fresh_at(&kept);
        if fresh > written {
            let (answer, _) = grantor.acquire(&mut kept, fresh - 1, 0, &LeaseQuery::default());
            prop_assert_eq!(answer.reset_after, 1);
        }
    }

    #[test]
    fn it_does_not_matter_how_often_a_state_is_settled((grantor, _) in grantor(), seed in any::<u64>()) {
        let mut rng = Rng::with_seed(seed);
        let (mut often, _, mut now) = history(&grantor, &mut rng);
        let mut once = often;
        for _ in 0..rng.usize(1..20) {
            now += rng.u64(0..3_000_000);
            grantor.settle(&mut often, now);
        }
        grantor.settle(&mut once, now);
        let query = LeaseQuery { tracked: 100, ..LeaseQuery::default() };
        let answer = grantor.acquire(&mut often, now, 1, &query);
        prop_assert_eq!(answer, grantor.acquire(&mut once, now, 1, &query));
    }
}
