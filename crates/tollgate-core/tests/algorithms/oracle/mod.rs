//! What an algorithm promises, written down from its definition.
//!
//! An oracle says one thing itself: how much counts at an instant, as an exact fraction. All else follows from that, in
//! one way for all algorithms: what fits, what is left, and by bisection the first tick at which it fits or nothing
//! counts any more.

mod fixed_window;
mod gcra;
mod sliding_buckets;
mod sliding_log;
mod sliding_window;

use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive, Zero};
use tollgate_core::{
    Quota, Retry, Tick,
    algorithm::{Algorithm, Assessment},
};

/// An algorithm, defined by what counts at an instant.
pub(crate) trait Oracle: Clone {
    type Algorithm: Algorithm;

    fn new(quota: &Quota) -> Self;

    /// Into how many parts a unit is cut, so that what counts is a whole number of parts.
    fn parts(&self) -> BigInt;

    /// What counts at `now`, in parts.
    fn used(&self, now: Tick) -> BigInt;

    fn take(&mut self, now: Tick, cost: u64);

    /// What a denial does to a history that lies in the future.
    fn repair(&mut self, now: Tick);

    /// The history that a question about a cost of 0 is answered from.
    fn peeked(&self, _now: Tick) -> Self {
        self.clone()
    }

    /// By how many units the algorithm may say less than the oracle.
    fn slack(&self) -> u64 {
        0
    }
}

pub(crate) fn big(number: impl Into<BigInt>) -> BigInt {
    number.into()
}

/// `limit − used − cost`, in parts.
fn room<O: Oracle>(oracle: &O, limit: u64, now: Tick, cost: u64) -> BigInt {
    (big(limit) - cost) * oracle.parts() - oracle.used(now)
}

fn fits<O: Oracle>(oracle: &O, limit: u64, now: Tick, cost: u64) -> bool {
    cost == 0 || !room(oracle, limit, now, cost).is_negative()
}

/// Whole units that are left.
pub(crate) fn left<O: Oracle>(oracle: &O, limit: u64, now: Tick, cost: u64) -> u64 {
    let room = room(oracle, limit, now, cost);
    if room.is_negative() {
        0
    } else {
        (room / oracle.parts()).to_u64().expect("at most the limit")
    }
}

/// The first tick from `now` on at which `is` holds: it does not stop to hold.
pub(crate) fn first(now: Tick, is: impl Fn(Tick) -> bool) -> Tick {
    let (mut no, mut yes) = (now, now);
    let mut step = 1;
    while !is(yes) {
        no = yes + 1;
        yes = yes.saturating_add(step);
        step = step.saturating_mul(4);
    }
    while no < yes {
        let middle = no + (yes - no) / 2;
        if is(middle) {
            yes = middle;
        } else {
            no = middle + 1;
        }
    }
    yes
}

/// What the algorithm has to answer.
pub(crate) fn assess<O: Oracle>(oracle: &O, limit: u64, now: Tick, cost: u64) -> Assessment {
    if fits(oracle, limit, now, cost) {
        let mut after = if cost == 0 {
            oracle.peeked(now)
        } else {
            oracle.clone()
        };
        after.take(now, cost);
        let remaining = left(&after, limit, now, 0);
        let fresh = first(now, |tick| after.used(tick).is_zero()) - now;
        let retry = if remaining >= cost.max(1) {
            Retry::Now
        } else if cost == 0 {
            // What costs nothing repairs nothing, and the next unit will.
            assess(oracle, limit, now, 1).retry
        } else {
            Retry::after_micros(first(now, |tick| fits(&after, limit, tick, cost)) - now)
        };
        return Assessment::new(true, remaining, fresh, retry);
    }
    let mut after = oracle.clone();
    after.repair(now);
    let fresh = first(now, |tick| after.used(tick).is_zero()) - now;
    let retry = if cost > limit {
        Retry::Never
    } else {
        Retry::after_micros(first(now, |tick| fits(&after, limit, tick, cost)) - now)
    };
    Assessment::new(false, left(&after, limit, now, 0), fresh, retry)
}

pub(crate) use self::{
    fixed_window::FixedWindowOracle,
    gcra::GcraOracle,
    sliding_buckets::{FEW, SlidingBucketsOracle},
    sliding_log::SlidingLogOracle,
    sliding_window::SlidingWindowOracle,
};
