//! The state of GCRA.

use crate::time::Tick;

/// 16 bytes: the theoretical arrival time, as whole microseconds and a remainder in units of the quota's denominator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcraState {
    pub(super) tat: Tick,
    pub(super) rest: u32,
    /// Where requests wait: units that were taken before this time lapse, because the state was repaired or converted since. In
    /// steps of [`CUT_STEP`], rounded up; 0 if it never was. Where units may be owed: 1 while they are.
    pub(super) cut: u32,
}

/// In what steps of time a state remembers that it was cut, in powers of 2 µs: about a second, for 140 years.
pub(super) const CUT_STEP: u32 = 20;

impl GcraState {
    /// The theoretical arrival time, rounded down to microseconds.
    #[must_use]
    pub const fn tat(&self) -> Tick {
        self.tat
    }

    /// What the arrival time has beyond whole microseconds, in units of 1/[`denominator`](crate::algorithm::Gcra::denominator) µs.
    #[must_use]
    pub const fn rest(&self) -> u32 {
        self.rest
    }

    /// Units that were taken before this time lapse instead of going back. In steps of 2^20 µs; 0: none lapse. Only states of
    /// rules whose requests [wait](crate::Rule::wait) have it.
    #[must_use]
    pub const fn cut(&self) -> u32 {
        self.cut
    }

    /// A state of these numbers: for stores that keep them elsewhere.
    #[must_use]
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
