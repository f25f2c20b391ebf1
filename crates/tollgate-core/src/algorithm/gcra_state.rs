//! The state of GCRA.

use crate::time::Tick;

/// 16 bytes: the theoretical arrival time, as whole microseconds and a remainder in units of the quota's denominator.
#[must_use]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcraState {
    /// The theoretical arrival time, rounded down to microseconds.
    pub tat: Tick,
    /// What the arrival time has beyond whole microseconds, in units of 1/[`denominator`](crate::algorithm::Gcra::denominator) µs.
    pub rest: u32,
    /// Of rules whose requests [wait](crate::Rule::wait): units that were taken before this time lapse instead of going back, because the
    /// state was repaired or converted since. In steps of 2^20 µs, rounded up; 0: none lapse. Where units may be owed: 1 while they are.
    pub cut: u32,
}

/// In what steps of time a state remembers that it was cut, in powers of 2 µs: about a second, for 140 years.
pub(super) const CUT_STEP: u32 = 20;

impl GcraState {
    /// A state of these numbers: for stores that keep them elsewhere.
    pub const fn new(tat: Tick, rest: u32, cut: u32) -> Self {
        Self { tat, rest, cut }
    }

    /// Lets all units lapse that were taken so far.
    pub(super) fn cut_after(&mut self, before: &Self, now: Tick) {
        // A process that holds units took them before the arrival time that they led to.
        let steps = (before.tat.max(now) >> CUT_STEP) + 1;
        self.cut = u32::try_from(steps).unwrap_or(u32::MAX).max(before.cut);
    }
}
