//! Windows that are granted never count more than their limit.

use std::time::Duration;

use proptest::prelude::*;
use tollgate_core::{
    AlgorithmKind, Quota, Tick,
    algorithm::{Algorithm, FixedWindow, SlidingWindow, Taken},
};
use tollgate_prefilter::{Grant, LeaseQuery, LeaseTerms};
use tollgate_test_reference::{WindowGrantor, WindowState};

use crate::{
    buckets::weather,
    cluster::{Cluster, Shared, Sums, Weather},
    oracle::ExactWindow,
};

struct Window<A: Algorithm> {
    quota: A,
    length: Tick,
    grantor: WindowGrantor<A>,
    state: WindowState<A::State>,
    exact: ExactWindow,
}

impl<A: Algorithm> Shared for Window<A> {
    fn acquire(&mut self, now: Tick, cost: u64, query: &LeaseQuery) -> (bool, Option<Grant>) {
        let (answer, grant) = self.grantor.acquire(&mut self.state, now, cost, query);
        (answer.fits, grant)
    }

    fn reset(&mut self, now: Tick) {
        self.grantor.reset(&mut self.state, now);
        self.exact.forget();
    }

    fn admit(&mut self, now: Tick, cost: u64) {
        assert!(self.exact.admit(now, cost), "{:?}", self.exact);
    }

    fn refund(&mut self, now: Tick, window: u64, units: u64) {
        let quota = &self.quota;
        // As for a unit that is taken in that window.
        let mut then = A::State::default();
        quota.take(&mut then, window * self.length, 1);
        let taken = Taken::new(now, quota.fresh_at(&then));
        quota.refund(&mut self.state.counts, now, taken, units);
    }

    fn excuse(&mut self, units: u64) {
        self.exact.excuse(units);
    }
}

/// A limit, a length, and a demand between half and twice the limit.
fn windows() -> impl Strategy<Value = (u64, Duration, Weather)> {
    let limits = prop::sample::select(vec![20_u64, 97, 499, 5_003]);
    let seconds = prop::sample::select(vec![1_u64, 7, 60]);
    (limits, seconds, 1..=4_u64, weather()).prop_map(|(limit, seconds, load, weather)| {
        let gap = seconds * 1_000_000 / limit * 4 / load;
        (
            limit,
            Duration::from_secs(seconds),
            Weather { gap, ..weather },
        )
    })
}

fn cluster<A: Algorithm>(quota: &Quota, weather: Weather, seed: u64) -> Cluster<Window<A>> {
    let terms = LeaseTerms::new(quota, 300).expect("it is granted");
    let slides = quota.algorithm() == AlgorithmKind::SlidingWindow;
    let window = || A::new(quota).expect("a window");
    let window = Window::<A> {
        quota: window(),
        length: quota.period().as_micros() as Tick,
        grantor: WindowGrantor::new(window(), &terms).expect("a window"),
        state: WindowState::default(),
        exact: ExactWindow::new(quota, slides),
    };
    Cluster::new(window, terms, weather, seed)
}

fn run<A: Algorithm>(quota: &Quota, weather: Weather, seed: u64) {
    cluster::<A>(quota, weather, seed).run(8_000);
}

/// Within one window: what is counted in the end was admitted, or was lost with a process or with a message.
fn accounts_for<A: Algorithm>(quota: &Quota, weather: Weather, seed: u64) -> Sums {
    let mut cluster = cluster::<A>(quota, weather, seed);
    cluster.run(8_000);
    cluster.settle();
    let Window { quota, state, .. } = &cluster.shared;
    let counted = A::weight(&state.counts);
    assert!(!quota.is_ahead(&state.counts, cluster.now));
    let sums = cluster.sums;
    assert_eq!(
        counted,
        sums.admitted + sums.burnt + sums.missed,
        "{sums:?}"
    );
    sums
}

/// A window that begins with the history and is not over in it, which asks for about twice the limit.
fn long() -> impl Strategy<Value = (u64, Weather)> {
    let limits = prop::sample::select(vec![97_u64, 499, 5_003]);
    (limits, weather(), 0..=300_u64).prop_map(|(limit, weather, denied)| {
        let weather = Weather {
            gap: 10_000,
            reset: 0,
            denied,
            ..weather
        };
        (limit, weather)
    })
}

const LONG: Duration = Duration::from_secs(10_000_000);

proptest! {
    #[test]
    fn no_fixed_window_counts_more_than_its_limit(
        (limit, length, weather) in windows(),
        seed in any::<u64>(),
    ) {
        run::<FixedWindow>(&Quota::fixed_window(limit, length), weather, seed);
    }

    #[test]
    fn no_sliding_window_counts_more_than_its_limit(
        (limit, length, weather) in windows(),
        seed in any::<u64>(),
    ) {
        run::<SlidingWindow>(&Quota::sliding_window(limit, length), weather, seed);
    }

    #[test]
    fn each_unit_of_a_window_was_admitted_or_lost_with_a_process_or_a_message(
        (limit, weather) in long(),
        seed in any::<u64>(),
    ) {
        accounts_for::<FixedWindow>(&Quota::fixed_window(limit, LONG), weather, seed);
        accounts_for::<SlidingWindow>(&Quota::sliding_window(limit, LONG), weather, seed);
    }

    #[test]
    fn without_crashes_and_lost_messages_no_unit_of_a_window_is(
        (limit, weather) in long(),
        seed in any::<u64>(),
    ) {
        let weather = Weather { lost: 0, crash: 0, ..weather };
        let sums = accounts_for::<FixedWindow>(&Quota::fixed_window(limit, LONG), weather, seed);
        prop_assert_eq!(sums.burnt + sums.missed, 0);
        let sums = accounts_for::<SlidingWindow>(&Quota::sliding_window(limit, LONG), weather, seed);
        prop_assert_eq!(sums.burnt + sums.missed, 0);
    }
}
