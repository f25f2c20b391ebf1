//! A clock that goes back, case by case.

use tollgate_core::{
    Quota, SECOND,
    algorithm::{Algorithm, FixedWindow, Gcra, Retry, SlidingBuckets, SlidingLog, SlidingWindow},
};

const START: u64 = 1_700_000_000_000_000;

fn ready<A: Algorithm>(quota: Quota) -> A {
    A::new(&quota).expect("a valid quota")
}

/// Uses the quota up at `START`, is denied at `back`, and asks again at `then`.
fn left_after_going_back<A: Algorithm>(quota: Quota, back: u64, then: u64) -> u64 {
    let algorithm: A = ready(quota);
    let mut state = A::State::default();
    algorithm.take(&mut state, START, quota.limit());
    assert!(!algorithm.assess(&state, back, 1).fits);
    algorithm.repair(&mut state, back);
    algorithm.assess(&state, then, 0).remaining
}

#[test]
fn a_step_back_over_a_boundary_does_not_refill_the_window_that_it_left() {
    let (back, then) = (START - 1_000, START);
    let fixed = Quota::fixed_window(5, SECOND);
    assert_eq!(left_after_going_back::<FixedWindow>(fixed, back, then), 0);
    let sliding = Quota::sliding_window(5, SECOND);
    assert_eq!(
        left_after_going_back::<SlidingWindow>(sliding, back, then),
        0
    );
    let buckets = Quota::sliding_buckets(5, SECOND);
    assert_eq!(
        left_after_going_back::<SlidingBuckets>(buckets, back, then),
        0
    );
    let log = Quota::sliding_log(5, SECOND);
    assert_eq!(left_after_going_back::<SlidingLog>(log, back, then), 0);
    let bucket = Quota::gcra(5, SECOND);
    assert_eq!(left_after_going_back::<Gcra>(bucket, back, then), 0);
}

#[test]
fn a_clock_that_goes_back_by_years_locks_no_client_out() {
    let back = START / 2;
    for (wait, left) in [
        (
            2_000_000,
            left_after_going_back::<FixedWindow>(
                Quota::fixed_window(5, SECOND),
                back,
                back + 2_000_000,
            ),
        ),
        (
            3_000_000,
            left_after_going_back::<SlidingWindow>(
                Quota::sliding_window(5, SECOND),
                back,
                back + 3_000_000,
            ),
        ),
        (
            1_034_000,
            left_after_going_back::<SlidingBuckets>(
                Quota::sliding_buckets(5, SECOND),
                back,
                back + 1_034_000,
            ),
        ),
        (
            1_000_000,
            left_after_going_back::<SlidingLog>(
                Quota::sliding_log(5, SECOND),
                back,
                back + 1_000_000,
            ),
        ),
        (
            1_000_000,
            left_after_going_back::<Gcra>(Quota::gcra(5, SECOND), back, back + 1_000_000),
        ),
    ] {
        assert_eq!(left, 5, "after {wait} µs");
    }
}

#[test]
fn a_previous_window_weighs_no_less_after_a_repair() {
    let algorithm: SlidingWindow = ready(Quota::sliding_window(10, SECOND));
    let mut state = Default::default();
    algorithm.take(&mut state, START, 9);
    // The next window: the nine of the one before weigh 8.1, rounded up.
    let next = START + 1_100_000;
    assert!(algorithm.assess(&state, next, 1).fits);
    algorithm.take(&mut state, next, 1);
    // Back to nine tenths of some earlier window, where nine of the one before would weigh one.
    let back = START - 4_100_000;
    let denied = algorithm.assess(&state, back, 1);
    assert_eq!((denied.fits, denied.remaining), (false, 0));
    algorithm.repair(&mut state, back);
    let Retry::After(wait) = denied.retry else {
        panic!("{denied:?}");
    };
    // The rest of the window, and a ninth of the next one.
    assert_eq!(wait.as_micros(), 100_000 + 111_112);
}

#[test]
fn units_of_the_future_and_of_now_become_one_entry_of_a_log() {
    let algorithm: SlidingLog = ready(Quota::sliding_log(5, SECOND));
    let mut state = Default::default();
    algorithm.take(&mut state, START, 2);
    algorithm.take(&mut state, START + 10, 3);
    algorithm.repair(&mut state, START);
    let mut other = Default::default();
    algorithm.take(&mut other, START, 5);
    assert_eq!(state, other);
}

#[test]
fn the_ends_of_time_panic_nowhere() {
    fn check<A: Algorithm>(quota: Quota) {
        let algorithm: A = ready(quota);
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
        let period = std::time::Duration::from_micros(period);
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
