use num_bigint::BigInt;
use tollgate_core::{Quota, Tick, algorithm::SlidingLog};

use crate::oracle::{Oracle, big};

/// All that was ever taken, by instant. A unit counts for one period from its instant on.
#[derive(Clone)]
pub(crate) struct SlidingLogOracle {
    period: u64,
    taken: Vec<(Tick, u64)>,
}

impl Oracle for SlidingLogOracle {
    type Algorithm = SlidingLog;

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
        let counts = self
            .taken
            .iter()
            .filter(|(at, _)| big(*at) + self.period > big(now));
        counts.map(|(_, units)| big(*units)).sum()
    }

    fn take(&mut self, now: Tick, cost: u64) {
        if cost > 0 {
            // A clock that went back counts as the newest instant seen.
            let newest = self.taken.iter().map(|(at, _)| *at).max();
            self.taken.push((now.max(newest.unwrap_or(0)), cost));
            // An entry that stopped to count by a clock that ran ahead does not come back with it.
            let period = self.period;
            self.taken.retain(|(at, _)| big(*at) + period > big(now));
        }
    }

    fn repair(&mut self, now: Tick) {
        for (at, _) in &mut self.taken {
            *at = (*at).min(now);
        }
    }
}
