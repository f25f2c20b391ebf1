//! From when on a state may be forgotten.

use std::time::Duration;

use fastrand::Rng;
use proptest::prelude::*;
use tollgate_core::{Quota, Tick};
use tollgate_prefilter::{Ask, BucketLender, BucketState, Closed, LeaseTerms, Lot};

/// A lender, and the burst of its quota.
pub(crate) fn lender() -> impl Strategy<Value = (BucketLender, u64)> {
    let rates = prop::sample::select(vec![7_u64, 97, 1_000, 999_983]);
    (rates, 1..=3_u64).prop_map(|(rate, seconds)| {
        let quota = Quota::gcra(rate, Duration::from_secs(seconds)).burst(rate.max(30));
        let terms = LeaseTerms::new(&quota, 500).expect("it is lent");
        let lender = BucketLender::new(&quota, terms).expect("a bucket");
        (lender, quota.limit())
    })
}

fn ask(rng: &mut Rng, lots: &mut Vec<Closed>) -> Ask {
    let closed = (!lots.is_empty() && rng.bool()).then(|| {
        let lot = lots.swap_remove(rng.usize(0..lots.len()));
        Closed {
            left: rng.u64(0..=lot.size),
            ..lot
        }
    });
    let (parking, segment) = (rng.u64(0..100), rng.u64(0..100));
    Ask {
        closed,
        parking,
        segment,
    }
}

fn lot(lots: &mut Vec<Closed>, lot: Option<Lot>) {
    if let Some(Lot::Parking { units, generation }) = lot {
        lots.push(Closed {
            size: units,
            left: units,
            generation,
        });
    }
}

/// A state after a history, what is still out of it, and when it was last written.
pub(crate) fn history(lender: &BucketLender, rng: &mut Rng) -> (BucketState, Vec<Closed>, Tick) {
    let (mut state, mut lots) = (BucketState::default(), Vec::new());
    let mut now = 1_700_000_000_000_000;
    for _ in 0..rng.usize(1..40) {
        now += [0, 1_000, 500_000, 6_000_000][rng.usize(0..4)] * rng.u64(0..3);
        let ask = ask(rng, &mut lots);
        let (_, lent) = lender.acquire(&mut state, now, rng.u64(0..9), &ask);
        lot(&mut lots, lent);
    }
    (state, lots, now)
}

proptest! {
    #[test]
    fn a_fresh_state_answers_like_one_that_was_forgotten(
        (lender, _) in lender(),
        seed in any::<u64>(),
        later in prop::sample::select(vec![0_u64, 1, 1_000_000, 30_000_000]),
    ) {
        let mut rng = Rng::with_seed(seed);
        let (mut kept, mut lots, written) = history(&lender, &mut rng);
        let mut forgotten = BucketState::default();
        let mut now = lender.fresh_at(&kept).max(written) + later;
        for _ in 0..20 {
            let (cost, ask) = (rng.u64(0..9), ask(&mut rng, &mut lots));
            let answer = lender.acquire(&mut kept, now, cost, &ask);
            prop_assert_eq!(answer, lender.acquire(&mut forgotten, now, cost, &ask));
            lot(&mut lots, answer.1);
            now += rng.u64(0..2_000_000);
        }
    }

    #[test]
    fn a_tick_earlier_it_answers_otherwise((lender, _) in lender(), seed in any::<u64>()) {
        let (mut kept, _, written) = history(&lender, &mut Rng::with_seed(seed));
        let fresh = lender.fresh_at(&kept);
        if fresh > written {
            let (answer, _) = lender.acquire(&mut kept, fresh - 1, 0, &Ask::default());
            prop_assert_eq!(answer.reset_after, 1);
        }
    }

    #[test]
    fn it_does_not_matter_how_often_a_state_is_settled((lender, _) in lender(), seed in any::<u64>()) {
        let mut rng = Rng::with_seed(seed);
        let (mut often, _, mut now) = history(&lender, &mut rng);
        let mut once = often;
        for _ in 0..rng.usize(1..20) {
            now += rng.u64(0..3_000_000);
            lender.settle(&mut often, now);
        }
        lender.settle(&mut once, now);
        let ask = Ask { parking: 100, ..Ask::default() };
        let answer = lender.acquire(&mut often, now, 1, &ask);
        prop_assert_eq!(answer, lender.acquire(&mut once, now, 1, &ask));
    }
}
