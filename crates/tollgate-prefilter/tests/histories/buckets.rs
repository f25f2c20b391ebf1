//! Buckets that are granted never admit more than their burst and what comes back.

use std::time::Duration;

use proptest::prelude::*;
use tollgate_core::{Quota, Tick};
use tollgate_prefilter::{Grant, LeaseQuery, LeaseTerms};
use tollgate_test_reference::{BucketGrantor, BucketState};

use crate::{
    cluster::{Cluster, Shared, Weather},
    oracle::ExactBucket,
};

pub(crate) struct Bucket {
    pub(crate) grantor: BucketGrantor,
    pub(crate) state: BucketState,
    pub(crate) exact: ExactBucket,
    /// Units above the limit that may pass: none, unless the clock went forward.
    pub(crate) above: u64,
    pub(crate) reserve: u64,
}

impl Bucket {
    pub(crate) fn new(quota: &Quota, terms: LeaseTerms) -> Self {
        Self {
            grantor: BucketGrantor::new(quota, terms).expect("a bucket"),
            state: BucketState::default(),
            exact: ExactBucket::new(quota),
            above: 0,
            reserve: terms.reserve(),
        }
    }
}

impl Shared for Bucket {
    fn acquire(&mut self, now: Tick, cost: u64, query: &LeaseQuery) -> (bool, Option<Grant>) {
        let (answer, grant) = self.grantor.acquire(&mut self.state, now, cost, query);
        assert!(self.state.leases.total() <= self.reserve);
        (answer.fits, grant)
    }

    fn reset(&mut self, now: Tick) {
        self.grantor.reset(&mut self.state, now);
        self.exact.fill();
    }

    fn admit(&mut self, now: Tick, cost: u64) {
        self.exact.admit(now, cost);
        assert!(self.exact.is_within(self.above), "{:?}", self.exact);
    }
}

/// The terms of a quota, if it is granted. A reset does not know what is granted ahead: where there are any, nothing is.
pub(crate) fn terms(quota: &Quota, permille: u16, weather: &Weather) -> Option<LeaseTerms> {
    let terms = LeaseTerms::new(quota, permille).ok()?;
    Some(match weather.reset {
        0 => terms,
        _ => terms.with_schedule(None),
    })
}

/// A quota, and a demand between a third and three times of what it admits.
pub(crate) fn quotas() -> impl Strategy<Value = (Quota, Weather)> {
    let rates = prop::sample::select(vec![7_u64, 23, 97, 100, 499, 997, 5_003, 20_011]);
    let periods = prop::sample::select(vec![1_u64, 1, 1, 7, 60]);
    (rates, periods, 1_u64..=4, 1..=3_u64, weather()).prop_map(
        |(rate, seconds, bursts, load, weather)| {
            let quota = Quota::gcra(rate, Duration::from_secs(seconds));
            let quota = quota.burst((rate * bursts / 2).max(20));
            let gap = seconds * 1_000_000 / rate * 2 / load;
            (quota, Weather { gap, ..weather })
        },
    )
}

pub(crate) fn weather() -> impl Strategy<Value = Weather> {
    let delays = prop::sample::select(vec![0_u64, 1_000, 50_000]);
    (
        delays,
        1_u64..=9,
        0..=30_u64,
        0..=5_u64,
        0..=5_u64,
        prop::sample::select(vec![0_u64, 0, 0, 3, 9]),
    )
        .prop_map(|(delay, heaviest, lost, crash, silence, reset)| Weather {
            gap: 1_000,
            heaviest,
            delay,
            lost,
            crash,
            silence,
            reset,
            denied: 20,
            silent: 30_000_000,
        })
}

proptest! {
    #[test]
    fn no_more_passes_than_the_exact_bucket_lets_through(
        (quota, weather) in quotas(),
        permille in prop::sample::select(vec![50_u16, 100, 300, 1_000]),
        seed in any::<u64>(),
    ) {
        let Some(terms) = terms(&quota, permille, &weather) else { return Ok(()) };
        let mut cluster = Cluster::new(Bucket::new(&quota, terms), terms, weather, seed);
        cluster.run(8_000);
    }
}

/// Half again as much as the limit, evenly on eight processes.
const CROWD: Weather = Weather {
    gap: 667,
    heaviest: 1,
    delay: 500,
    lost: 2,
    crash: 0,
    silence: 0,
    reset: 0,
    denied: 20,
    silent: 0,
};

#[test]
fn at_the_limit_most_requests_are_answered_alone_from_what_is_granted_ahead() {
    let quota = Quota::gcra(1_000, Duration::from_secs(1));
    let terms = LeaseTerms::new(&quota, 100).expect("it is granted");
    let mut cluster = Cluster::new(Bucket::new(&quota, terms), terms, CROWD, 7);
    cluster.run(50_000);
    let sums = cluster.sums;
    assert!(sums.ahead * 2 > sums.granted, "{sums:?}");
    assert!(sums.spent * 10 > sums.granted * 9, "{sums:?}");
}
