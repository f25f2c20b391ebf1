//! What broke in other limiters, one test for each fault.

use std::time::Duration;

use tollgate_core::{
    AlgorithmKind, MINUTE, Quota, Tick,
    algorithm::{
        Algorithm, Concurrent, FixedWindow, Gcra, Retry, SlidingBuckets, SlidingLog, SlidingWindow,
        Taken,
    },
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

    /// How many single units pass at one instant.
    fn passes(&mut self, now: Tick) -> u64 {
        (0..)
            .find(|_| !self.acquire(now, 1))
            .expect("there is a limit")
    }

    fn left(&self, now: Tick) -> u64 {
        self.algorithm.assess(&self.state, now, 0).remaining
    }
}

/// Runs a check for each algorithm with `limit` units in `period`.
macro_rules! for_each_quota {
    ($check:ident, $limit:expr, $period:expr) => {
        $check::<FixedWindow>(Quota::fixed_window($limit, $period));
        $check::<SlidingWindow>(Quota::sliding_window($limit, $period));
        $check::<SlidingBuckets>(Quota::sliding_buckets($limit, $period));
        $check::<SlidingLog>(Quota::sliding_log($limit, $period));
        $check::<Gcra>(Quota::gcra($limit, $period));
        $check::<Gcra>(Quota::token_bucket($limit).refill($limit, $period));
        $check::<Gcra>(Quota::leaky_bucket($limit).leak($limit, $period));
    };
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
fn a_refund_of_more_than_was_taken_lifts_no_higher_than_the_limit() {
    fn check<A: Algorithm>(quota: Quota) {
        let mut key = Key::<A>::new(quota);
        assert!(key.acquire(START, 6));
        let taken = Taken::new(START, key.algorithm.fresh_at(&key.state));
        for _ in 0..3 {
            key.algorithm.refund(&mut key.state, START, taken, u64::MAX);
            assert_eq!(key.left(START), 10, "{quota:?}");
        }
        assert_eq!(key.passes(START), 10, "{quota:?}");
    }
    for_each_quota!(check, 10, MINUTE);
}

#[test]
fn two_windows_back_to_back_admit_what_their_pages_say() {
    fn around_a_boundary<A: Algorithm>(quota: Quota) -> u64 {
        let mut key = Key::<A>::new(quota);
        let last = START + 59_999_999;
        let at_the_end = key.passes(last);
        // One after the other, as soon as it fits, for what is left of sixty seconds.
        let mut now = last;
        let mut admitted = at_the_end;
        while let Retry::After(wait) = key.algorithm.assess(&key.state, now, 1).retry {
            now += wait.as_micros() as u64;
            if now >= last + 60_000_000 {
                break;
            }
            admitted += key.passes(now);
        }
        admitted
    }
    assert_eq!(
        around_a_boundary::<FixedWindow>(Quota::fixed_window(100, MINUTE)),
        200
    );
    assert_eq!(
        around_a_boundary::<SlidingWindow>(Quota::sliding_window(100, MINUTE)),
        199
    );
    assert_eq!(
        around_a_boundary::<SlidingBuckets>(Quota::sliding_buckets(100, MINUTE)),
        100
    );
    assert_eq!(
        around_a_boundary::<SlidingLog>(Quota::sliding_log(100, MINUTE)),
        100
    );
    assert_eq!(around_a_boundary::<Gcra>(Quota::gcra(100, MINUTE)), 199);
    assert_eq!(
        around_a_boundary::<Gcra>(Quota::gcra(100, MINUTE).burst(1)),
        100
    );
}

#[test]
fn units_that_several_sub_buckets_hold_come_back_with_the_last_of_them() {
    let mut key = Key::<SlidingBuckets>::new(Quota::sliding_buckets(10, MINUTE).buckets(6));
    assert!(key.acquire(START, 3));
    assert!(key.acquire(START + 10_000_000, 3));
    let now = START + 20_000_000;
    // Four fit once more when both have gone, a window and a sub-bucket after the second began.
    let again = key.algorithm.assess(&key.state, now, 4);
    assert_eq!((again.fits, again.remaining), (true, 0));
    assert_eq!(again.retry, Retry::after_micros(60_000_000));
    assert!(key.acquire(now, 4));
    for (cost, micros) in [
        (3, 50_000_000),
        (4, 60_000_000),
        (6, 60_000_000),
        (7, 70_000_000),
    ] {
        let denied = key.algorithm.assess(&key.state, now, cost);
        assert_eq!(denied.retry, Retry::after_micros(micros), "{cost}");
    }
}

#[test]
fn a_quota_is_ready_for_its_own_algorithm_and_only_if_it_is_valid() {
    use AlgorithmKind as K;
    fn check<A: Algorithm>(kinds: &[K]) {
        let minute = |limit: u64| {
            [
                Quota::fixed_window(limit, MINUTE),
                Quota::sliding_window(limit, MINUTE),
                Quota::sliding_buckets(limit, MINUTE),
                Quota::sliding_log(limit, MINUTE),
                Quota::gcra(limit, MINUTE),
                Quota::token_bucket(limit).refill(limit, MINUTE),
                Quota::leaky_bucket(limit).leak(limit, MINUTE),
                Quota::concurrent(limit),
            ]
        };
        for quota in minute(10) {
            let is_its_own = kinds.contains(&quota.algorithm());
            assert_eq!(A::new(&quota).is_some(), is_its_own, "{quota:?}");
        }
        for quota in minute(0) {
            assert!(A::new(&quota).is_none(), "{quota:?}");
        }
        assert!(A::new(&Quota::unlimited()).is_none());
    }
    check::<FixedWindow>(&[K::FixedWindow]);
    check::<SlidingWindow>(&[K::SlidingWindow]);
    check::<SlidingBuckets>(&[K::SlidingBuckets]);
    check::<SlidingLog>(&[K::SlidingLog]);
    check::<Gcra>(&[K::Gcra, K::TokenBucket, K::LeakyBucket]);
    check::<Concurrent>(&[K::Concurrent]);
}

#[test]
fn what_takes_nothing_leaves_a_state_as_it_is() {
    fn check<A: Algorithm>(quota: Quota) {
        let algorithm = A::new(&quota).expect("a valid quota");
        let mut state = A::State::default();
        for cost in [0, quota.limit() + 1] {
            algorithm.acquire(&mut state, START, cost);
            assert_eq!(state, A::State::default(), "{quota:?}");
        }
        let answer = algorithm.acquire(&mut state, START, 4);
        assert!(answer.fits);
        let mut taken = A::State::default();
        algorithm.take(&mut taken, START, 4);
        assert_eq!(state, taken);
        for (now, cost) in [(START, 0), (START + 7, 0), (START + 7, 11)] {
            algorithm.acquire(&mut state, now, cost);
            assert_eq!(state, taken, "{quota:?}");
        }
        // Nothing lies too far ahead, and the quota is the same.
        algorithm.repair(&mut state, START);
        assert_eq!(state, taken);
        for now in [START, START - 300_000_000] {
            assert_eq!(algorithm.convert(&algorithm, &state, now), taken);
        }
    }
    for_each_quota!(check, 10, MINUTE);
}

#[test]
fn the_deny_cache_says_at_once_what_a_full_state_says() {
    fn check<A: Algorithm>(quota: Quota) {
        let mut key = Key::<A>::new(quota);
        key.passes(START);
        let bound = key.algorithm.deny_bound(&key.state, START);
        let bound = bound.expect("nothing is left");
        for now in [START, START + 1, START + 999_999] {
            let answer = key.algorithm.deny_by(bound, now, 1);
            let denied = key.algorithm.assess(&key.state, now, 1);
            assert_eq!(answer, Some(denied), "{quota:?}");
            assert_eq!(key.algorithm.deny_by(bound, now, 0), None);
        }
        let fits_at = START + 130_000_000;
        assert_eq!(key.algorithm.deny_by(bound, fits_at, 1), None, "{quota:?}");
        // A clock that went back by an hour: the state is to be repaired.
        let earlier = START - 3_600_000_000;
        assert_eq!(key.algorithm.deny_by(bound, earlier, 1), None, "{quota:?}");
    }
    for_each_quota!(check, 10, MINUTE);
}

#[test]
fn a_window_that_has_not_begun_is_ahead_and_no_other_is() {
    fn check<A: Algorithm>(quota: Quota) {
        let mut key = Key::<A>::new(quota);
        assert!(key.acquire(START, 1));
        let is_ahead = |now| key.algorithm.is_ahead(&key.state, now);
        assert!(is_ahead(START - 1), "{quota:?}");
        assert!(!is_ahead(START), "{quota:?}");
        assert!(!is_ahead(START + 60_000_000), "{quota:?}");
    }
    check::<FixedWindow>(Quota::fixed_window(10, MINUTE));
    check::<SlidingWindow>(Quota::sliding_window(10, MINUTE));
    check::<SlidingBuckets>(Quota::sliding_buckets(10, MINUTE));
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
fn a_denial_leaves_the_state_of_a_window_to_a_quota_whose_limit_is_not_smaller() {
    fn check<A: Algorithm>(quotas: [Quota; 3]) {
        let [less, same, more] = quotas.map(|quota| A::new(&quota).expect("a valid quota"));
        let mut state = A::State::default();
        less.take(&mut state, START, 1);
        let defers = [&less, &same, &more].map(|writer| same.defers_to(writer, &state, START));
        assert_eq!(defers, [false, true, true], "{same:?}");
    }
    let limits = [9, 10, 11];
    check::<FixedWindow>(limits.map(|limit| Quota::fixed_window(limit, MINUTE)));
    check::<SlidingWindow>(limits.map(|limit| Quota::sliding_window(limit, MINUTE)));
    check::<SlidingBuckets>(limits.map(|limit| Quota::sliding_buckets(limit, MINUTE)));
    check::<SlidingLog>(limits.map(|limit| Quota::sliding_log(limit, MINUTE)));
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
