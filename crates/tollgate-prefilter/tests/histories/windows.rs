//! Windows that are lent never count more than their limit.

use std::time::Duration;

use proptest::prelude::*;
use tollgate_core::{
    Quota, Tick,
    algorithm::{Algorithm, FixedWindow, SlidingWindow},
};
use tollgate_prefilter::{Ask, LeaseTerms, Lot, WindowLender, WindowState};

use crate::{
    buckets::weather,
    cluster::{Cluster, Shared, Weather},
    oracle::ExactWindow,
};

struct Window<A: Algorithm> {
    lender: WindowLender<A>,
    state: WindowState<A::State>,
    exact: ExactWindow,
}

impl<A: Algorithm> Shared for Window<A> {
    fn acquire(&mut self, now: Tick, cost: u64, ask: &Ask) -> (bool, Option<Lot>) {
        let (answer, lot) = self.lender.acquire(&mut self.state, now, cost, ask);
        (answer.fits, lot)
    }

    fn reset(&mut self, now: Tick) {
        self.lender.reset(&mut self.state, now);
        self.exact.forget();
    }

    fn admit(&mut self, now: Tick, cost: u64) {
        assert!(self.exact.admit(now, cost), "{:?}", self.exact);
    }
}

/// A limit, a length, and weather in which between half and twice as much is asked for.
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

fn run<A: Algorithm>(quota: &Quota, slides: bool, weather: Weather, seed: u64) {
    let terms = LeaseTerms::new(quota, 300).expect("it is lent");
    let window = Window::<A> {
        lender: WindowLender::new(A::new(quota).expect("a window"), &terms).expect("a window"),
        state: WindowState::default(),
        exact: ExactWindow::new(quota, slides),
    };
    Cluster::new(window, terms, weather, seed).run(8_000);
}

proptest! {
    #[test]
    fn no_fixed_window_counts_more_than_its_limit(
        (limit, length, weather) in windows(),
        seed in any::<u64>(),
    ) {
        run::<FixedWindow>(&Quota::fixed_window(limit, length), false, weather, seed);
    }

    #[test]
    fn no_sliding_window_counts_more_than_its_limit(
        (limit, length, weather) in windows(),
        seed in any::<u64>(),
    ) {
        run::<SlidingWindow>(&Quota::sliding_window(limit, length), true, weather, seed);
    }
}
