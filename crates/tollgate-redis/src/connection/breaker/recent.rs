//! What became of the calls of the last moments.

use std::time::Duration;

/// The parts of a window. Failures within one part of another count as one.
pub(super) const SLICES: u32 = 8;

/// The whole slices of a window, and that which goes on.
const KEPT: usize = SLICES as usize + 1;

/// The calls of a window that moves with the time, in slices.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    slices: [Slice; KEPT],
    sum: Slice,
    /// The number of the slice that goes on.
    at: u64,
    /// When a failure was last counted as a moment.
    counted: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    calls: u32,
    failed: u32,
    moments: u32,
}

impl Recent {
    /// Adds calls at this time; a time that goes back counts as the last one. Says whether this is another moment with failures.
    pub(super) fn add(
        &mut self,
        answered: u32,
        failed: u32,
        now: Duration,
        slice: Duration,
    ) -> bool {
        // A slice is a millisecond at least.
        let micros = |time: Duration| time.as_micros() as u64;
        let number = micros(now) / micros(slice).max(1);
        let passed = number.saturating_sub(self.at).min(KEPT as u64);
        self.at = self.at.max(number);
        for back in 0..passed {
            let old = std::mem::take(&mut self.slices[((self.at - back) % KEPT as u64) as usize]);
            self.sum.calls -= old.calls;
            self.sum.failed -= old.failed;
            self.sum.moments -= old.moments;
        }
        let is_moment = failed > 0 && self.counted.is_none_or(|last| now >= last + slice);
        if is_moment {
            self.counted = Some(now);
        }
        // So that no sum leaves its number: no window has so many calls.
        let room = u32::MAX - self.sum.calls;
        let failed = failed.min(room);
        let calls = failed + answered.min(room - failed);
        for sum in [
            &mut self.slices[(self.at % KEPT as u64) as usize],
            &mut self.sum,
        ] {
            sum.calls += calls;
            sum.failed += failed;
            sum.moments += u32::from(is_moment);
        }
        is_moment
    }

    pub(super) fn calls(&self) -> u32 {
        self.sum.calls
    }

    /// The moments with failures: those within a slice of each other are one.
    pub(super) fn moments(&self) -> u32 {
        self.sum.moments
    }

    /// Whether at least `percent` of the calls failed.
    pub(super) fn fails(&self, percent: u32) -> bool {
        u64::from(self.sum.failed) * 100 >= u64::from(self.sum.calls) * u64::from(percent)
    }
}
