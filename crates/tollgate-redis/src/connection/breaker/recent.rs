//! What became of the calls of the last moments.

use std::time::Duration;

use crate::connection::breaker::options::SLICES;

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
    /// Adds calls at this time; a time that goes back counts as the last one.
    pub(super) fn add(&mut self, answered: u32, failed: u32, now: Duration, slice: Duration) {
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

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    #[test]
    fn the_calls_of_the_last_nine_slices_count_and_no_others() {
        let (mut rng, slice) = (Rng::with_seed(3), Duration::from_millis(125));
        let mut recent = Recent::default();
        // Each slice with its calls and failures.
        let mut all: Vec<(u64, u32, u32)> = Vec::new();
        let (mut now, mut last_failure) = (Duration::ZERO, None);
        let mut moments = Vec::new();
        for _ in 0..5_000 {
            now += match rng.u8(..10) {
                0 => Duration::from_millis(rng.u64(..3_000)),
                1..4 => Duration::ZERO,
                _ => Duration::from_millis(rng.u64(..200)),
            };
            let (answered, failed) = (rng.u32(..4), rng.u32(..3));
            recent.add(answered, failed, now, slice);
            let at = now.as_millis() as u64 / 125;
            all.push((at, answered + failed, failed));
            if failed > 0 && last_failure.is_none_or(|last| now >= last + slice) {
                last_failure = Some(now);
                moments.push(at);
            }
            let counts = |slice: u64| slice + 9 > at;
            all.retain(|(slice, ..)| counts(*slice));
            moments.retain(|slice| counts(*slice));
            let calls: u32 = all.iter().map(|(_, calls, _)| calls).sum();
            let failed: u32 = all.iter().map(|(.., failed)| failed).sum();
            assert_eq!(recent.calls(), calls);
            assert_eq!(recent.moments(), moments.len() as u32);
            for percent in 1..=100 {
                let fails = u64::from(failed) * 100 >= u64::from(calls) * percent;
                assert_eq!(recent.fails(percent as u32), fails, "{failed} of {calls}");
            }
        }
    }

    #[test]
    fn a_sum_of_calls_stays_within_its_number() {
        let mut recent = Recent::default();
        for _ in 0..3 {
            recent.add(
                u32::MAX - 1,
                u32::MAX - 1,
                Duration::ZERO,
                Duration::from_millis(125),
            );
        }
        assert_eq!(recent.calls(), u32::MAX);
    }
}
