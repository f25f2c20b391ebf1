//! Exact limits that know what was really admitted, and when.

use tollgate_core::{Quota, Tick};

/// A bucket in whole parts: a unit is as many parts as its period has µs, and as many as its rate come back in a µs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExactBucket {
    unit: i128,
    rate: i128,
    full: i128,
    level: i128,
    at: Tick,
}

impl ExactBucket {
    pub(crate) fn new(quota: &Quota) -> Self {
        let unit = quota.period().as_micros() as i128;
        let full = unit * i128::from(quota.limit());
        Self {
            unit,
            rate: i128::from(quota.rate()),
            full,
            level: full,
            at: 0,
        }
    }

    /// Takes units whether they are there or not.
    pub(crate) fn admit(&mut self, now: Tick, units: u64) {
        let back = i128::from(now - self.at) * self.rate;
        self.level = self.full.min(self.level + back) - i128::from(units) * self.unit;
        self.at = now;
    }

    /// As a reset leaves it, and a clock that goes forward by far.
    pub(crate) fn fill(&mut self) {
        self.level = self.full;
    }

    /// Whether no more than so many units were admitted above the limit.
    pub(crate) fn is_within(&self, units: u64) -> bool {
        self.level >= -i128::from(units) * self.unit
    }
}

/// What was admitted in an aligned window and in the one before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExactWindow {
    limit: u128,
    length: u128,
    slides: bool,
    window: u128,
    current: u128,
    previous: u128,
    /// What may exceed the limit in this window, and in the one before.
    excused: [u128; 2],
}

impl ExactWindow {
    /// `slides`: whether the window before counts by the part that is not over.
    pub(crate) fn new(quota: &Quota, slides: bool) -> Self {
        Self {
            limit: u128::from(quota.limit()),
            length: quota.period().as_micros(),
            slides,
            window: 0,
            current: 0,
            previous: 0,
            excused: [0; 2],
        }
    }

    /// This many units may exceed the limit.
    pub(crate) fn excuse(&mut self, units: u64) {
        self.excused[0] += u128::from(units);
    }

    /// As a reset leaves it.
    pub(crate) fn forget(&mut self) {
        (self.current, self.previous) = (0, 0);
    }

    /// Counts units, and says whether they are within the limit.
    pub(crate) fn admit(&mut self, now: Tick, units: u64) -> bool {
        let window = u128::from(now) / self.length;
        if window != self.window {
            let next = window == self.window + 1;
            self.previous = if next { self.current } else { 0 };
            (self.window, self.current) = (window, 0);
            // A delay may bring them a window later.
            self.excused = [0, self.excused[0]];
        }
        self.current += u128::from(units);
        let rest = self.length - u128::from(now) % self.length;
        let before = if self.slides { self.previous * rest } else { 0 };
        let most = self.limit + self.excused[0] + self.excused[1];
        self.current * self.length + before <= most * self.length
    }
}
