//! What broke in other limiters, one test for each fault.

use std::time::Duration;

use tollgate_core::{
    DAY, MINUTE, Quota, SECOND, Tick,
    algorithm::{
        Algorithm, FixedWindow, Gcra, Retry, SlidingBuckets, SlidingLog, SlidingWindow, Taken,
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
    fn ask(&mut self, now: Tick, cost: u64) -> bool {
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
        (0..).find(|_| !self.ask(now, 1)).expect("there is a limit")
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
fn the_first_limit_passes_and_the_next_does_not() {
    fn check<A: Algorithm>(quota: Quota) {
        assert_eq!(
            Key::<A>::new(quota).passes(START),
            quota.limit(),
            "{quota:?}"
        );
        assert_eq!(Key::<A>::new(quota).passes(0), quota.limit(), "{quota:?}");
    }
    for limit in [1, 2, 10, 997] {
        for_each_quota!(check, limit, MINUTE);
    }
}

#[test]
fn after_a_pause_the_limit_passes_and_no_more() {
    fn check<A: Algorithm>(quota: Quota) {
        let mut key = Key::<A>::new(quota);
        for pause in [2, 30, 500, 1_000_000] {
            let now = START + pause * 60_000_000;
            assert_eq!(key.passes(now), quota.limit(), "{quota:?}");
        }
    }
    for_each_quota!(check, 10, MINUTE);
}

#[test]
fn a_denial_debits_nothing_however_often_it_comes() {
    fn check<A: Algorithm>(quota: Quota) {
        let mut key = Key::<A>::new(quota);
        assert!(key.ask(START, 7));
        let before = key.state.clone();
        for _ in 0..100 {
            assert!(!key.ask(START, 4));
            assert!(!key.ask(START + 5, u64::MAX));
        }
        assert_eq!(key.state, before);
        assert!(key.ask(START, 3));
    }
    for_each_quota!(check, 10, MINUTE);
}

#[test]
fn retry_is_enough_and_a_microsecond_less_is_not() {
    fn check<A: Algorithm>(quota: Quota) {
        for cost in [1, 3, 7] {
            let mut key = Key::<A>::new(quota);
            let mut now = START + 12_345;
            for _ in 0..50 {
                // Told with what was taken the last time, or with a denial.
                match key.algorithm.acquire(&mut key.state, now, cost).retry {
                    Retry::Now => {}
                    Retry::After(wait) => {
                        let wait = wait.as_micros() as u64;
                        assert!(!key.ask(now + wait - 1, cost), "{quota:?}");
                        now += wait;
                        assert!(key.ask(now, cost), "{quota:?}");
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    for_each_quota!(check, 7, SECOND);
    for_each_quota!(check, 11, Duration::from_millis(10));
    for_each_quota!(check, 997, DAY);
}

#[test]
fn a_cost_that_can_never_fit_says_never_and_not_now() {
    fn check<A: Algorithm>(quota: Quota) {
        let mut key = Key::<A>::new(quota);
        for _ in 0..2 {
            for cost in [11, 1_000, u64::MAX] {
                let answer = key.algorithm.assess(&key.state, START, cost);
                assert_eq!((answer.fits, answer.retry), (false, Retry::Never));
            }
            key.ask(START, 10);
        }
    }
    for_each_quota!(check, 10, MINUTE);
}

#[test]
fn a_cost_of_nothing_passes_when_nothing_is_left_and_leaves_no_state() {
    fn check<A: Algorithm>(quota: Quota) {
        let mut key = Key::<A>::new(quota);
        assert!(key.ask(START, 0));
        assert_eq!(key.state, A::State::default());
        assert!(key.ask(START, 10) && !key.ask(START, 1) && key.ask(START, 0));
        assert_eq!(key.left(START), 0);
    }
    for_each_quota!(check, 10, MINUTE);
}

#[test]
fn units_of_one_instant_and_of_any_cost_are_summed() {
    fn check<A: Algorithm>(quota: Quota) {
        let mut key = Key::<A>::new(quota);
        for (cost, left) in [(1, 99), (1, 98), (50, 48), (7, 41), (41, 0)] {
            assert!(key.ask(START, cost));
            assert_eq!(key.left(START), left);
        }
    }
    for_each_quota!(check, 100, MINUTE);
}

#[test]
fn rates_above_one_a_microsecond_are_limits_too() {
    let mut key = Key::<Gcra>::new(Quota::gcra(3_000_000, SECOND).burst(5));
    assert_eq!(key.passes(START), 5);
    assert_eq!(key.passes(START + 1), 3);
    assert_eq!(key.passes(START + 2), 3);
    for_each_million(SECOND);
}

fn for_each_million(period: Duration) {
    let mut key = Key::<SlidingWindow>::new(Quota::sliding_window(1_000_000, period));
    assert!(key.ask(START, 999_999) && key.ask(START, 1) && !key.ask(START, 1));
    let mut key = Key::<FixedWindow>::new(Quota::fixed_window(1_000_000, period));
    assert!(key.ask(START, 999_999) && key.ask(START, 1) && !key.ask(START, 1));
}

#[test]
fn what_is_left_takes_a_few_steps_to_compute_at_any_rate() {
    // Counted up one by one, a microsecond of this rate would take four billion steps for each answer.
    let mut key = Key::<Gcra>::new(Quota::gcra(4_294_967_291, Duration::from_micros(1)));
    for now in 0..1_000 {
        assert!(key.ask(START + now, 1_000_000_000));
        assert_eq!(key.left(START + now), 3_294_967_291);
    }
}

#[test]
fn a_refund_in_a_later_window_gives_no_other_units_back() {
    fn check<A: Algorithm>(quota: Quota) {
        let mut key = Key::<A>::new(quota);
        assert!(key.ask(START, 6));
        let taken = Taken {
            at: START,
            fresh_at: key.algorithm.fresh_at(&key.state),
        };
        // Long after the six are forgotten, four others are taken.
        let later = START + 600_000_000;
        assert!(key.ask(later, 4));
        key.algorithm.refund(&mut key.state, later, taken, 6);
        assert_eq!(key.left(later), 6, "{quota:?}");
    }
    for_each_quota!(check, 10, MINUTE);
}

#[test]
fn a_refund_of_more_than_was_taken_lifts_no_higher_than_the_limit() {
    fn check<A: Algorithm>(quota: Quota) {
        let mut key = Key::<A>::new(quota);
        assert!(key.ask(START, 6));
        let taken = Taken {
            at: START,
            fresh_at: key.algorithm.fresh_at(&key.state),
        };
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
