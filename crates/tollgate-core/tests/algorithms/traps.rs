//! What broke in other limiters, one test for each fault.

use std::time::Duration;

use tollgate_core::{
    MINUTE, Quota, Tick,
    algorithm::{Algorithm, FixedWindow, Gcra, SlidingBuckets, SlidingLog, SlidingWindow, Taken},
};

/// The start of a minute.
const START: Tick = 1_700_000_040_000_000;

/// A quota on its way: one key, one state.
struct Key<A: Algorithm> {
    algorithm: A,
    state: A::State,
}

impl<A: Algorithm> Key<A> {
    fn new(quota: Quota) -> Self {
        Self {
            algorithm: A::new(&quota).expect("a valid quota"),
            state: A::State::default(),
        }
    }

    /// Whether `cost` units passed.
    fn acquire(&mut self, now: Tick, cost: u64) -> bool {
        let fits = self.algorithm.assess(&self.state, now, cost).fits;
        if fits {
            self.algorithm.take(&mut self.state, now, cost);
        } else {
            self.algorithm.repair(&mut self.state, now);
        }
        fits
    }

    fn left(&self, now: Tick) -> u64 {
        self.algorithm.assess(&self.state, now, 0).remaining
    }
}

#[test]
fn what_is_left_takes_a_few_steps_to_compute_at_any_rate() {
    // Counted up one by one, a microsecond of this rate would take four billion steps for each answer.
    let mut key = Key::<Gcra>::new(Quota::gcra(4_294_967_291, Duration::from_micros(1)));
    for now in 0..1_000 {
        assert!(key.acquire(START + now, 1_000_000_000));
        assert_eq!(key.left(START + now), 3_294_967_291);
    }
}

#[test]
fn a_state_whose_units_all_went_back_is_as_good_as_a_fresh_one_where_a_clock_went_back() {
    fn check<A: Algorithm>(quota: Quota) {
        let mut key = Key::<A>::new(quota);
        let ahead = START + 300_000_000;
        assert!(key.acquire(ahead, 6));
        let taken = Taken::new(ahead, key.algorithm.fresh_at(&key.state));
        key.algorithm.refund(&mut key.state, ahead, taken, 6);
        let fresh = Key::<A>::new(quota);
        for cost in [0, 3] {
            assert_eq!(
                key.algorithm.assess(&key.state, START, cost),
                fresh.algorithm.assess(&fresh.state, START, cost),
                "{quota:?}"
            );
        }
        assert_eq!(A::heap_bytes(&key.state), 0);
    }
    check::<FixedWindow>(Quota::fixed_window(10, MINUTE));
    check::<SlidingWindow>(Quota::sliding_window(10, MINUTE));
    check::<SlidingLog>(Quota::sliding_log(10, MINUTE));
}

#[test]
fn the_ends_of_time_panic_nowhere() {
    fn check<A: Algorithm>(quota: Quota) {
        let algorithm = A::new(&quota).expect("a valid quota");
        let times = [0, 1, START, u64::MAX / 2, u64::MAX - 1, u64::MAX];
        for before in times {
            for now in times {
                let mut state = A::State::default();
                algorithm.take(&mut state, before, 1);
                for cost in [0, 1, 2, quota.limit(), u64::MAX] {
                    let _ = algorithm.assess(&state, now, cost);
                }
                let _ = algorithm.fresh_at(&state);
                let _ = algorithm.convert(&algorithm, &state, now);
                if let Some(bound) = algorithm.deny_bound(&state, now) {
                    let _ = algorithm.deny_by(bound, before, 1);
                    let _ = algorithm.deny_by(bound, now, 1);
                }
                algorithm.repair(&mut state, now);
                if algorithm.assess(&state, now, 1).fits {
                    algorithm.take(&mut state, now, 1);
                }
                let _ = algorithm.assess(&state, now, 1);
            }
        }
    }
    for period in [1, 2, 7, 1_000_000] {
        let period = Duration::from_micros(period);
        for limit in [1, 3] {
            check::<FixedWindow>(Quota::fixed_window(limit, period));
            check::<SlidingWindow>(Quota::sliding_window(limit, period));
            check::<SlidingLog>(Quota::sliding_log(limit, period));
            check::<Gcra>(Quota::gcra(limit, period));
            if period.as_micros() > 1 {
                check::<SlidingBuckets>(Quota::sliding_buckets(limit, period).buckets(2));
            }
        }
    }
}
