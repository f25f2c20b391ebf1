use num_bigint::BigInt;
use tollgate_core::{Quota, Tick, algorithm::FixedWindow};

use crate::oracle::{Oracle, big};

/// All that was ever taken, by window. A window counts until a later one begins by the clock.
#[derive(Clone)]
pub(crate) struct FixedWindowOracle {
    period: u64,
    taken: Vec<(u64, u64)>,
}

impl FixedWindowOracle {
    fn window(&self, now: Tick) -> u64 {
        let newest = self.taken.iter().map(|(window, _)| *window).max();
        (now / self.period).max(newest.unwrap_or(0))
    }
}

impl Oracle for FixedWindowOracle {
    type Algorithm = FixedWindow;

    fn new(quota: &Quota) -> Self {
        Self {
            period: quota.period().as_micros() as u64,
            taken: Vec::new(),
        }
    }

    fn parts(&self) -> BigInt {
        big(1)
    }

    fn used(&self, now: Tick) -> BigInt {
        let current = self.window(now);
        let counts = self.taken.iter().filter(|(window, _)| *window == current);
        counts.map(|(_, units)| big(*units)).sum()
    }

    fn take(&mut self, now: Tick, cost: u64) {
        if cost > 0 {
            self.taken.push((self.window(now), cost));
        }
    }

    fn repair(&mut self, now: Tick) {
        let ahead = self.window(now).saturating_sub(now / self.period + 1);
        for (window, _) in &mut self.taken {
            *window = window.saturating_sub(ahead);
        }
    }
}
