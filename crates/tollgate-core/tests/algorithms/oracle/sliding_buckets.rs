use num_bigint::BigInt;
use tollgate_core::{Quota, Tick, algorithm::SlidingBuckets};

use crate::oracle::{Oracle, big};

/// All that was ever taken, by sub-bucket. A sub-bucket counts whole for as long as the window touches it.
#[derive(Clone)]
pub(crate) struct SlidingBucketsOracle {
    width: u64,
    buckets: u64,
    taken: Vec<(u64, u64)>,
}

impl SlidingBucketsOracle {
    fn number(&self, now: Tick) -> u64 {
        let newest = self.taken.iter().map(|(number, _)| *number).max();
        (now / self.width).max(newest.unwrap_or(0))
    }
}

/// The quota does not tell its sub-buckets; the tests use one number besides the default.
pub(crate) const FEW: u32 = 6;

impl Oracle for SlidingBucketsOracle {
    type Algorithm = SlidingBuckets;

    fn new(quota: &Quota) -> Self {
        let buckets = if *quota == quota.buckets(FEW) {
            FEW
        } else {
            60
        };
        let period = quota.period().as_micros() as u64;
        Self {
            width: period.div_ceil(u64::from(buckets)),
            buckets: u64::from(buckets),
            taken: Vec::new(),
        }
    }

    fn parts(&self) -> BigInt {
        big(1)
    }

    fn used(&self, now: Tick) -> BigInt {
        let current = self.number(now);
        let counts = self
            .taken
            .iter()
            .filter(|(number, _)| number + self.buckets >= current);
        counts.map(|(_, units)| big(*units)).sum()
    }

    fn take(&mut self, now: Tick, cost: u64) {
        if cost > 0 {
            self.taken.push((self.number(now), cost));
        }
    }

    fn repair(&mut self, now: Tick) {
        let number = self.number(now);
        let least = (now / self.width + 1).max(self.buckets);
        if number > least {
            // What does not count any more would count again beside a newest one that lies further back.
            self.taken.retain(|(of, _)| of + self.buckets >= number);
        }
        for (of, _) in &mut self.taken {
            *of = least.min(*of);
        }
    }
}
