//! When a request that was denied fits.

use fastrand::Rng;
use proptest::prelude::*;
use tollgate_core::algorithm::Retry;
use tollgate_prefilter::LeaseQuery;

use crate::freshness::{grantor, history};

proptest! {
    #[test]
    fn it_fits_at_its_retry_time_and_not_a_tick_earlier(
        (grantor, burst) in grantor(),
        seed in any::<u64>(),
        later in prop::sample::select(vec![0_u64, 1, 1_000, 700_000, 9_000_000]),
        near in 0..=100_u64,
    ) {
        let (mut state, _, written) = history(&grantor, &mut Rng::with_seed(seed));
        let now = written + later;
        // Near the burst, where what is on lease is in the way, or anything.
        let cost = burst - burst * near / 100;
        let (answer, _) = grantor.acquire(&mut state, now, cost, &LeaseQuery::default());
        if let Retry::After(wait) = answer.retry {
            let then = now + wait.as_micros() as u64;
            let fits = |mut state, at| grantor.acquire(&mut state, at, cost, &LeaseQuery::default()).0.fits;
            prop_assert!(fits(state, then));
            prop_assert!(!fits(state, then - 1));
        }
    }
}
