//! When the units of a quota fit again, for a process that does not know the state.

use tollgate_core::{
    AlgorithmKind, Quota, Retry, Tick,
    algorithm::{Algorithm, FixedWindow, Gcra, SlidingBuckets, SlidingLog, SlidingWindow},
};

use crate::{
    effective::Effective,
    engine::{limit::Limit, store_time::SLACK},
    lease::terms::LeaseTerms,
};

/// When `cost` units fit, if only `left` are there and no more is known of the state. `due` is when this process's own
/// scheduled lease has them. `at` is the time by the store's clock, to [`SLACK`].
///
/// Never too early for a client that is alone on its key and uses one process: all used units count as if they had been taken
/// just now. For a bucket this is the time in which the missing units are refilled.
pub(crate) fn wait(limit: &Limit, at: Tick, (cost, left): (u64, u64), due: Option<Tick>) -> Retry {
    if let Some(due) = due {
        return Retry::after_micros(due.max(1));
    }
    let (quota, used) = (&limit.quota, limit.quota.limit().saturating_sub(left));
    // Of a quota without a limit nothing is ever missing.
    let retry = after_taking(quota, at, used, cost).map_or(Retry::Now, |(_, retry)| retry);
    let Retry::After(wait) = retry else {
        return retry;
    };
    let wait = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
    let later = match (&limit.effective, Gcra::new(quota)) {
        (Effective::Leased(terms), Some(_)) => out_of_a_bucket(terms, quota.limit(), cost),
        // Windows begin by the store's clock.
        (_, None) => SLACK,
        _ => 0,
    };
    Retry::after_micros(wait.saturating_add(later))
}

/// For how long leases of other processes may keep units of a bucket from coming back.
fn out_of_a_bucket(terms: &LeaseTerms, limit: u64, cost: u64) -> Tick {
    let scheduled = terms.schedule.map_or(0, |schedule| schedule.horizon);
    // A cost that does not fit next to what may be on lease has to wait until the leases have run out.
    let tracked = if cost > limit.saturating_sub(terms.reserve) {
        terms.tracked_life.saturating_mul(2)
    } else {
        0
    };
    scheduled.max(tracked)
}

/// After `used` units were taken at `at`: when the state is fresh again, and when `cost` units fit.
pub(crate) fn after_taking(quota: &Quota, at: Tick, used: u64, cost: u64) -> Option<(Tick, Retry)> {
    fn of<A: Algorithm>(quota: &Quota, at: Tick, used: u64, cost: u64) -> Option<(Tick, Retry)> {
        let (quota, mut state) = (A::new(quota)?, A::State::default());
        quota.take(&mut state, at, used);
        let answer = quota.assess(&state, at, cost);
        let retry = if answer.fits {
            Retry::Now
        } else {
            answer.retry
        };
        Some((quota.fresh_at(&state), retry))
    }
    match quota.algorithm() {
        AlgorithmKind::TokenBucket | AlgorithmKind::Gcra | AlgorithmKind::LeakyBucket => {
            of::<Gcra>(quota, at, used, cost)
        }
        AlgorithmKind::FixedWindow => of::<FixedWindow>(quota, at, used, cost),
        AlgorithmKind::SlidingWindow => of::<SlidingWindow>(quota, at, used, cost),
        AlgorithmKind::SlidingBuckets => of::<SlidingBuckets>(quota, at, used, cost),
        AlgorithmKind::SlidingLog => of::<SlidingLog>(quota, at, used, cost),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollgate_core::{Consistency, LeaseShare, MINUTE, Rule, SECOND};

    use super::*;

    const AT: Tick = 1_700_000_000_123_456;

    fn limit(quota: Quota, consistency: Consistency) -> Limit {
        let effective = Effective::new(&quota, consistency);
        Limit::new(0, &Rule::new("rule", quota), quota, effective)
    }

    /// What a process says that knows only how many units are left.
    fn retry_of(quota: Quota, counted: Consistency, cost: u64, left: u64) -> Retry {
        let limit = limit(quota, counted);
        assert!(!matches!(limit.effective, Effective::Exact(_)), "{quota:?}");
        wait(&limit, AT, (cost, left), None)
    }

    const LEASED: Consistency = Consistency::Leased {
        share: LeaseShare::percent(10),
    };

    const EVENTUAL: Consistency = Consistency::Eventual {
        interval: Duration::from_millis(100),
        max_unreported: 10,
    };

    /// Takes units at random times of the last windows; says by how much the answer of a process is later than the state,
    /// where the state has to be waited for.
    fn later_than_the_state<A: Algorithm>(quota: Quota, counted: Consistency) {
        let algorithm = A::new(&quota).expect("a valid quota");
        let window = quota.window().as_micros() as u64;
        let mut random = fastrand::Rng::with_seed(quota.limit());
        let mut waits = 0;
        for _ in 0..2_000 {
            let mut state = A::State::default();
            let mut now = AT - random.u64(1..3 * window);
            while now < AT {
                let cost = random.u64(1..=quota.limit() / 2);
                algorithm.acquire(&mut state, now, cost);
                now += random.u64(1..=window / 2);
            }
            let left = algorithm.assess(&state, AT, 0).remaining;
            let cost = random.u64(1..=quota.limit());
            if left >= cost {
                continue;
            }
            let Retry::After(exact) = algorithm.assess(&state, AT, cost).retry else {
                panic!("{cost} do not fit");
            };
            let Retry::After(wait) = retry_of(quota, counted, cost, left) else {
                panic!("{cost} are not there");
            };
            assert!(
                wait >= exact,
                "{quota:?}: {cost} of {left}, {wait:?} is before {exact:?}"
            );
            waits += 1;
        }
        assert!(waits > 100, "{waits}");
    }

    #[test]
    fn retry_of_an_unknown_state_is_never_too_early() {
        for counted in [LEASED, EVENTUAL] {
            later_than_the_state::<Gcra>(Quota::gcra(700, MINUTE), counted);
            later_than_the_state::<Gcra>(Quota::token_bucket(97).refill(7, SECOND), counted);
            later_than_the_state::<FixedWindow>(Quota::fixed_window(100, MINUTE), counted);
            later_than_the_state::<SlidingWindow>(Quota::sliding_window(100, MINUTE), counted);
        }
        later_than_the_state::<SlidingBuckets>(Quota::sliding_buckets(100, MINUTE), EVENTUAL);
    }

    #[test]
    fn retry_of_a_bucket_is_exact_to_the_unit() {
        let bucket = Quota::gcra(60, MINUTE);
        assert_eq!(retry_of(bucket, EVENTUAL, 1, 0), Retry::After(SECOND));
        assert_eq!(retry_of(bucket, EVENTUAL, 5, 2), Retry::After(3 * SECOND));
        // A unit a second is granted as it is there, never ahead of time.
        assert_eq!(retry_of(bucket, LEASED, 1, 0), Retry::After(SECOND));
        // While a tenth may be on lease, sixty do not fit.
        let expected = Retry::After(60 * SECOND + 20 * SECOND);
        assert_eq!(retry_of(bucket, LEASED, 60, 0), expected);
    }
}
