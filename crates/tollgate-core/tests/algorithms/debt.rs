//! What is charged beyond the limit is owed, by the definition of each algorithm, and paid back before anything fits.

use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive};
use proptest::prelude::*;
use tollgate_core::{
    AlgorithmKind, Quota, Retry, Tick,
    algorithm::{Algorithm, FixedWindow, Gcra, SlidingWindow},
};

use crate::{
    bound::{Admitted, promised},
    history::{property, quota, requests, start},
    oracle::{Oracle, assess, big},
};

/// All that was taken, by window, or as a level.
#[derive(Clone)]
struct Taken {
    limit: u64,
    rate: u64,
    period: u64,
    taken: Vec<(Tick, u64)>,
}

impl Taken {
    fn new(quota: &Quota) -> Self {
        Self {
            limit: quota.limit(),
            rate: quota.rate(),
            period: quota.period().as_micros() as u64,
            taken: Vec::new(),
        }
    }

    /// The units of this window and of the one before: what is beyond the limit moves on.
    fn windows(&self, now: Tick) -> (u64, u64) {
        let Some((first, _)) = self.taken.first() else {
            return (0, 0);
        };
        let (mut before, mut this, mut window) = (0, 0, first / self.period);
        let mut taken = self.taken.iter().peekable();
        loop {
            while let Some((_, units)) = taken.next_if(|(at, _)| at / self.period == window) {
                this += units;
            }
            if window == now / self.period {
                return (this, before);
            }
            if this == 0 && before == 0 {
                // Nothing is left to move: on to the next time that something was taken.
                let next = taken.peek().map_or(now, |(at, _)| *at);
                window = next / self.period;
                continue;
            }
            (before, this) = (this.min(self.limit), this.saturating_sub(self.limit));
            window += 1;
        }
    }
}

/// An oracle for each algorithm, of what was taken.
macro_rules! oracle {
    ($name:ident, $algorithm:ty, $parts:expr, $used:expr) => {
        #[derive(Clone)]
        struct $name(Taken);

        impl Oracle for $name {
            type Algorithm = $algorithm;

            fn new(quota: &Quota) -> Self {
                Self(Taken::new(quota))
            }

            fn parts(&self) -> BigInt {
                let parts: fn(&Taken) -> u64 = $parts;
                big(parts(&self.0))
            }

            fn used(&self, now: Tick) -> BigInt {
                let used: fn(&Taken, Tick) -> BigInt = $used;
                used(&self.0, now)
            }

            fn take(&mut self, now: Tick, cost: u64) {
                if cost > 0 {
                    self.0.taken.push((now, cost));
                }
            }

            // Time goes ahead.
            fn repair(&mut self, _now: Tick) {}
        }
    };
}

oracle!(Buckets, Gcra, |it| it.period, |it, now| {
    let (mut level, mut since) = (BigInt::ZERO, 0);
    for (at, units) in it.taken.iter().copied().chain([(now, 0)]) {
        level = (level - big(at - since) * it.rate).max(BigInt::ZERO) + big(units) * it.period;
        since = at;
    }
    level
});
oracle!(Windows, FixedWindow, |_| 1, |it, now| big(it
    .windows(now)
    .0));
oracle!(Sliding, SlidingWindow, |it| it.period, |it, now| {
    let (this, before) = it.windows(now);
    big(this) * it.period + big(before) * (it.period - now % it.period)
});

fn owes<O: Oracle>(kind: AlgorithmKind) {
    let values = (quota(kind), start(), requests(40), 1_u64..3_000);
    property(60, &values, |(quota, start, requests, thousandths)| {
        let limit = quota.limit().min(1_000_000);
        let debt = (limit * thousandths / 1_000).max(1);
        // An estimate in steps of time says less than the exact fraction.
        prop_assume!(u128::from(quota.limit() + debt) * quota.period().as_micros() < 1 << 53);
        prop_assume!(quota.limit() + debt < 1 << 32);
        // The oracle goes through all windows.
        prop_assume!(quota.limit() < 10_000);
        let algorithm = O::Algorithm::new(&quota).expect("valid").with_debt(debt);
        let mut oracle = O::new(&quota);
        let (mut state, mut now, mut retry) = (Default::default(), start, start);
        let (limit, period) = (quota.limit(), quota.period().as_micros() as u64);
        let mut admitted = Vec::new();
        for (n, request) in requests.into_iter().enumerate() {
            // Not so far that the oracle takes long.
            let then = request.step.from(now, period, retry);
            now = then.min(now + 20 * period);
            let left = algorithm.assess(&state, now, 0).remaining;
            let cost = request.cost.of(limit, left);
            let owed = oracle.used(now) - big(limit) * oracle.parts();
            let whole = |parts: &BigInt| {
                let up: BigInt = (parts + oracle.parts() - 1_u8) / oracle.parts();
                up.to_u64().expect("few")
            };
            let owes = if owed.is_positive() { whole(&owed) } else { 0 };
            prop_assert_eq!(algorithm.debt(&state, now), owes, "{:?}", quota);
            let mut took = 0;
            if n % 3 == 1 {
                let units = cost.saturating_mul(3).min(2 * (limit + debt));
                let room = big(debt) * oracle.parts() - &owed;
                let room: BigInt = room.max(BigInt::ZERO) / oracle.parts();
                took = units.min(room.to_u64().expect("few"));
                let lapsed = algorithm.charge(&mut state, now, units);
                prop_assert_eq!(lapsed, units - took, "{:?} {:?}", quota, debt);
                oracle.take(now, took);
            } else {
                let answer = algorithm.assess(&state, now, cost);
                let exact = assess(&oracle, limit, now, cost);
                prop_assert_eq!(answer, exact, "{:?} owes {} at {}", quota, owes, now);
                if answer.fits {
                    algorithm.take(&mut state, now, cost);
                    oracle.take(now, cost);
                    took = cost;
                } else {
                    algorithm.repair(&mut state, now);
                }
                if let Retry::After(wait) = answer.retry {
                    retry = now + wait.as_micros() as u64;
                }
            }
            let fresh = assess(&oracle, limit, now, 0).reset_after;
            prop_assert_eq!(algorithm.fresh_at(&state).saturating_sub(now), fresh);
            if let Some(bound) = algorithm.deny_bound(&state, now) {
                for at in [now, now + period / 3, now + period, retry] {
                    if let Some(answer) = algorithm.deny_by(bound, at, cost) {
                        prop_assert_eq!(answer, algorithm.assess(&state, at, cost));
                    }
                }
            }
            admitted.push(Admitted {
                at: now,
                elapsed: now - start,
                units: took,
            });
        }
        promised(&quota, debt, &admitted)
    });
}

#[test]
fn a_bucket_refills_what_is_owed_first() {
    owes::<Buckets>(AlgorithmKind::Gcra);
}

#[test]
fn what_a_fixed_window_owes_begins_the_next_ones() {
    owes::<Windows>(AlgorithmKind::FixedWindow);
}

#[test]
fn what_a_sliding_window_owes_begins_the_next_ones() {
    owes::<Sliding>(AlgorithmKind::SlidingWindow);
}
