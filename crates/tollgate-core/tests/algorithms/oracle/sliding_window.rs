use num_bigint::BigInt;
use num_traits::Zero;
use tollgate_core::{Quota, Tick, algorithm::SlidingWindow};

use crate::oracle::{Oracle, big};

/// All that was ever taken, by window. The current window counts whole, the one before by the part that still lies
/// within a period: an exact fraction.
#[derive(Clone)]
pub(crate) struct SlidingWindowOracle {
    limit: u64,
    period: u64,
    taken: Vec<(u64, u64)>,
}

impl SlidingWindowOracle {
    fn window(&self, now: Tick) -> u64 {
        let newest = self.taken.iter().map(|(window, _)| *window).max();
        (now / self.period).max(newest.unwrap_or(0))
    }

    fn units(&self, window: u64) -> BigInt {
        let of = self.taken.iter().filter(|(of, _)| *of == window);
        of.map(|(_, units)| big(*units)).sum()
    }
}

impl Oracle for SlidingWindowOracle {
    type Algorithm = SlidingWindow;

    fn new(quota: &Quota) -> Self {
        Self {
            limit: quota.limit(),
            period: quota.period().as_micros() as u64,
            taken: Vec::new(),
        }
    }

    fn parts(&self) -> BigInt {
        big(self.period)
    }

    fn used(&self, now: Tick) -> BigInt {
        let window = self.window(now);
        let start = big(window) * self.period;
        // A window of the future is seen from its start.
        let into = (big(now) - start).max(BigInt::zero());
        let before = window
            .checked_sub(1)
            .map_or_else(BigInt::zero, |w| self.units(w));
        self.units(window) * self.period + before * (big(self.period) - into)
    }

    fn take(&mut self, now: Tick, cost: u64) {
        if cost > 0 {
            self.taken.push((self.window(now), cost));
        }
    }

    fn repair(&mut self, now: Tick) {
        let newest = self.window(now);
        let ahead = newest.saturating_sub(now / self.period + 1);
        if ahead > 0 {
            // What does not count any more would count again if it came to lie in the window before.
            self.taken.retain(|(window, _)| window + 1 >= newest);
        }
        for (window, _) in &mut self.taken {
            *window = window.saturating_sub(ahead);
        }
    }

    /// Where `limit · period` leaves 53 bits, the overlap is rounded to steps: the page says by how much.
    fn slack(&self) -> u64 {
        if u128::from(self.limit) * u128::from(self.period) < 1 << 53 {
            0
        } else if u128::from(self.limit) * u128::from(self.limit) < 1 << 52 {
            1
        } else {
            2
        }
    }
}
