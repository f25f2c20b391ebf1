use num_bigint::BigInt;
use num_traits::{Signed, Zero};
use tollgate_core::{Quota, Tick, algorithm::Gcra};

use crate::oracle::{Oracle, big};

/// A bucket with a hole: a level in units that sinks evenly, and never below empty.
#[derive(Clone)]
pub(crate) struct GcraOracle {
    capacity: u64,
    /// Units that leave in `period` µs.
    rate: u64,
    period: u64,
    /// The level in units / period, and when it stood there. `None`: nothing was ever taken.
    level: Option<(BigInt, Tick)>,
}

impl Oracle for GcraOracle {
    type Algorithm = Gcra;

    fn new(quota: &Quota) -> Self {
        Self {
            capacity: quota.limit(),
            rate: quota.rate(),
            period: quota.period().as_micros() as u64,
            level: None,
        }
    }

    fn parts(&self) -> BigInt {
        big(self.period)
    }

    /// Back in time the level rises as it would have sunk.
    fn used(&self, now: Tick) -> BigInt {
        let Some((level, at)) = &self.level else {
            return BigInt::zero();
        };
        let level = level - (big(now) - *at) * self.rate;
        if level.is_negative() {
            BigInt::zero()
        } else {
            level
        }
    }

    fn take(&mut self, now: Tick, cost: u64) {
        if cost > 0 {
            self.level = Some((self.used(now) + big(cost) * self.period, now));
        }
    }

    fn repair(&mut self, now: Tick) {
        let full = big(self.capacity) * self.period;
        if self.used(now) > full {
            self.level = Some((full, now));
        }
    }

    /// A level above the capacity counts as the capacity.
    fn peeked(&self, now: Tick) -> Self {
        let mut peeked = self.clone();
        peeked.repair(now);
        peeked
    }
}
