//! What the meter's own account says of a decision.

use tollgate_core::{AlgorithmKind, Outcome, Quota, Retry, Tick, Verdict};

/// Compares decisions with an account of the same quota that knows of every unit that was let through.
///
/// The order in which processes tell Redis is not that in which they decided. So a decision is held against the account
/// with a tolerance: it is called wrong only if it would have been wrong that much later, or earlier, as well.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Judge {
    limit: u64,
    /// In which `rate` units come back, in µs.
    period: Tick,
    rate: u64,
    shape: Shape,
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    Bucket,
    Fixed,
    Sliding,
    /// By the width of a sub-bucket, and how many there are.
    Buckets(Tick, Tick),
}

impl Judge {
    /// `None` for what has no account: without a limit, or a log, which cannot be told of more than its limit.
    pub(super) fn of(quota: &Quota) -> Option<Self> {
        // A period is far below 2^64 µs, and no quota has one of nothing.
        let period = u64::try_from(quota.period().as_micros()).ok()?.max(1);
        let shape = match quota.algorithm() {
            AlgorithmKind::TokenBucket | AlgorithmKind::Gcra | AlgorithmKind::LeakyBucket => {
                Shape::Bucket
            }
            AlgorithmKind::FixedWindow => Shape::Fixed,
            AlgorithmKind::SlidingWindow => Shape::Sliding,
            AlgorithmKind::SlidingBuckets => {
                let buckets = u64::from(quota.bucket_count()).max(1);
                Shape::Buckets(period.div_ceil(buckets), buckets)
            }
            _ => return None,
        };
        Some(Self {
            limit: quota.limit(),
            period,
            rate: quota.rate().max(1),
            shape,
        })
    }

    /// How many of the units that were let through at `at` were above the limit: by the account's answer to whether all of
    /// them would fit.
    pub(super) fn over(&self, at: Tick, units: u64, answer: &Verdict, tolerance: Tick) -> u64 {
        if answer.outcome() != Outcome::Deny {
            return 0;
        }
        let above = units.saturating_sub(answer.remaining());
        match self.shape {
            Shape::Bucket => {
                let ahead = ticks(answer.reset_after()) + self.time_of(units);
                let early = ahead.saturating_sub(self.time_of(self.limit));
                if early <= tolerance {
                    return 0;
                }
                self.units_in(early).min(units)
            }
            // It may have come when the next window had begun.
            Shape::Fixed if self.period - at % self.period <= tolerance => 0,
            Shape::Fixed => above,
            Shape::Sliding | Shape::Buckets(..) => match answer.retry() {
                Retry::After(wait) if ticks(wait) <= tolerance => 0,
                _ => above,
            },
        }
    }

    /// Whether a refusal of `cost` units at `at` was false: by the account's answer to a check of nothing.
    pub(super) fn is_false(&self, at: Tick, cost: u64, answer: &Verdict, tolerance: Tick) -> bool {
        match self.shape {
            Shape::Bucket => {
                let ahead = ticks(answer.reset_after()) + self.time_of(cost);
                ahead.saturating_add(tolerance) <= self.time_of(self.limit)
            }
            // It may have been refused before this window began.
            Shape::Fixed => at % self.period > tolerance && answer.remaining() >= cost,
            Shape::Sliding | Shape::Buckets(..) => {
                let back = u128::from(self.limit) * u128::from(tolerance);
                let back = narrow(back.div_ceil(u128::from(self.period)));
                answer.remaining() >= cost.saturating_add(back)
            }
        }
    }

    /// Whether a refusal at `at` was false, by an answer for that time that was given later: when all that others were let
    /// through before is told. `now` is when it was heard.
    ///
    /// Units that were taken in the meantime are missing in it, so not all is seen. Where the account has gone on to another
    /// window it says nothing of the one at `at`.
    pub(super) fn was_false(
        &self,
        (at, now): (Tick, Tick),
        cost: u64,
        answer: &Verdict,
        tolerance: Tick,
    ) -> bool {
        !self.has_gone_on(at, now, answer) && self.is_false(at, cost, answer, tolerance)
    }

    fn has_gone_on(&self, at: Tick, now: Tick, answer: &Verdict) -> bool {
        let width = match self.shape {
            Shape::Bucket => return false,
            Shape::Fixed | Shape::Sliding => self.period,
            Shape::Buckets(width, _) => width,
        };
        at / width != now / width || self.counts_later(at, answer)
    }

    /// Whether the account that gave this answer for `at` counts in a later window, or part of one: what it is told of `at`
    /// counts there.
    pub(super) fn counts_later(&self, at: Tick, answer: &Verdict) -> bool {
        let (width, lasts) = match self.shape {
            // It has no windows.
            Shape::Bucket => return false,
            Shape::Fixed => (self.period, 1),
            Shape::Sliding => (self.period, 2),
            Shape::Buckets(width, buckets) => (width, buckets + 1),
        };
        ticks(answer.reset_after()) > width.saturating_mul(lasts) - at % width
    }

    /// Whether it matters when the account is told: a bucket that is told late has lost less in the meantime than it should.
    pub(super) fn leaks(&self) -> bool {
        matches!(self.shape, Shape::Bucket)
    }

    /// Whether nothing that was decided at `at` counts any more.
    pub(super) fn has_forgotten(&self, at: Tick, now: Tick) -> bool {
        matches!(self.shape, Shape::Fixed) && self.is_over(at, now)
    }

    /// Until when units that were taken at `at` weigh, as a refund has to say; `told` is what the rule's own state said.
    pub(super) fn fresh_at(&self, at: Tick, units: u64, told: Tick) -> Tick {
        let fresh_at = match self.shape {
            // Behind whatever was there.
            Shape::Bucket => return told.max(at.saturating_add(self.time_of(units))),
            Shape::Fixed => (at / self.period + 1).checked_mul(self.period),
            Shape::Sliding => (at / self.period + 2).checked_mul(self.period),
            Shape::Buckets(width, buckets) => (at / width + buckets + 1).checked_mul(width),
        };
        fresh_at.unwrap_or(told)
    }

    /// Whether what was decided at `at` counts in a window that is over at `now`.
    pub(in crate::store) fn is_over(&self, at: Tick, now: Tick) -> bool {
        match self.shape {
            Shape::Fixed | Shape::Sliding => at / self.period != now / self.period,
            Shape::Bucket | Shape::Buckets(..) => false,
        }
    }

    /// After how long nothing is left of any state.
    pub(super) fn memory(&self) -> Tick {
        match self.shape {
            Shape::Bucket => self.time_of(self.limit),
            Shape::Fixed => self.period,
            Shape::Sliding => self.period.saturating_mul(2),
            Shape::Buckets(width, buckets) => width.saturating_mul(buckets + 1),
        }
    }

    /// In what time so many units come back to a bucket.
    fn time_of(&self, units: u64) -> Tick {
        narrow(u128::from(units) * u128::from(self.period) / u128::from(self.rate))
    }

    /// How many units come back to a bucket in a time, rounded up.
    fn units_in(&self, time: Tick) -> u64 {
        let units = u128::from(time) * u128::from(self.rate);
        narrow(units.div_ceil(u128::from(self.period)))
    }
}

fn ticks(time: std::time::Duration) -> Tick {
    // Far from the end, so that sums of two are in range.
    narrow(time.as_micros()).min(u64::MAX / 4)
}

fn narrow(wide: u128) -> u64 {
    u64::try_from(wide).unwrap_or(u64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use tollgate_core::{SECOND, Source, algorithm::Assessment};

    use super::*;

    const AT: Tick = 1_700_000_000_500_000;

    fn answer(fits: bool, remaining: u64, reset_after: Tick, retry: Retry) -> Verdict {
        let answer = Assessment {
            fits,
            remaining,
            reset_after,
            retry,
        };
        Verdict::new(0, 0, answer, Source::Store)
    }

    #[test]
    fn a_unit_that_came_a_little_early_for_a_bucket_is_not_above_the_limit() {
        // A unit in 100 ms, ten at once.
        let judge = Judge::of(&Quota::gcra(10, SECOND)).expect("a bucket");
        let early = |by: Tick| {
            let used = 900_000 + by;
            answer(false, 0, used, Retry::after_micros(by))
        };
        assert_eq!(judge.over(AT, 1, &early(9_000), 10_000), 0);
        assert_eq!(judge.over(AT, 1, &early(11_000), 10_000), 1);
        assert_eq!(judge.over(AT, 5, &early(0), 10_000), 4);
    }

    #[test]
    fn a_refusal_by_a_bucket_is_false_if_the_units_were_there_for_longer_than_the_tolerance() {
        let judge = Judge::of(&Quota::gcra(10, SECOND)).expect("a bucket");
        let used = |time| answer(true, 0, time, Retry::Now);
        assert!(!judge.is_false(AT, 1, &used(895_000), 10_000));
        assert!(judge.is_false(AT, 1, &used(890_000), 10_000));
    }

    #[test]
    fn nothing_is_said_of_a_window_around_its_turn() {
        let judge = Judge::of(&Quota::fixed_window(10, SECOND)).expect("a window");
        let full = answer(false, 0, 1, Retry::after_micros(1));
        assert_eq!(judge.over(AT, 3, &full, 10_000), 3);
        assert_eq!(judge.over(AT + 495_000, 3, &full, 10_000), 0);
        let room = answer(true, 2, 1, Retry::Now);
        assert!(judge.is_false(AT, 2, &room, 10_000));
        assert!(!judge.is_false(AT, 3, &room, 10_000));
        assert!(!judge.is_false(AT + 505_000, 2, &room, 10_000));
    }

    #[test]
    fn a_window_that_slides_lets_go_of_units_within_the_tolerance() {
        let judge = Judge::of(&Quota::sliding_window(1_000, SECOND)).expect("a window");
        let soon = answer(false, 0, 1, Retry::after_micros(9_000));
        assert_eq!(judge.over(AT, 2, &soon, 10_000), 0);
        let later = answer(false, 1, 1, Retry::after_micros(11_000));
        assert_eq!(judge.over(AT, 2, &later, 10_000), 1);
        let room = |left| answer(true, left, 1, Retry::Now);
        assert!(!judge.is_false(AT, 1, &room(10), 10_000));
        assert!(judge.is_false(AT, 1, &room(11), 10_000));
    }

    #[test]
    fn a_window_that_has_gone_on_says_nothing_of_an_earlier_refusal() {
        let room = |reset_after| answer(true, 5, reset_after, Retry::Now);
        // Each counts by the second, and this is the middle of one.
        for (quota, lasts) in [
            (Quota::fixed_window(10, SECOND), 500_000),
            (Quota::sliding_window(10, SECOND), 1_500_000),
            (
                Quota::sliding_buckets(10, 10 * SECOND).buckets(10),
                10_500_000,
            ),
        ] {
            let judge = Judge::of(&quota).expect("a window");
            let was_false = |now, reset| judge.was_false((AT, now), 1, &room(reset), 10_000);
            assert!(was_false(AT + 100_000, lasts), "{quota:?}");
            assert!(!was_false(AT + 100_000, lasts + 1), "{quota:?}");
            assert!(!was_false(AT + 500_000, lasts), "{quota:?}");
        }
        let judge = Judge::of(&Quota::gcra(10, SECOND)).expect("a bucket");
        assert!(judge.was_false((AT, AT + 900_000), 1, &room(500_000), 10_000));
    }

    #[test]
    fn a_log_is_not_followed() {
        assert!(Judge::of(&Quota::sliding_log(10, SECOND)).is_none());
    }
}
