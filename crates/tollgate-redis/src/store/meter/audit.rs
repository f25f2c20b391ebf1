//! What the reference says of a decision.

#[cfg(test)]
mod tests;

use tollgate_core::{AlgorithmKind, Outcome, Quota, Retry, Tick, Verdict};

const TOLERANCE: Tick = 10_000;
const MOST_TOLERANCE: Tick = 10_000_000;

/// Compares decisions with a reference of the same quota that knows of every admitted unit.
///
/// Events reach Redis in another order than processes decided. So a decision is compared with a tolerance: it counts as wrong
/// only if it would have been wrong that much later, or earlier, as well.
#[derive(Clone, Copy, Debug)]
pub(super) struct Audit {
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

impl Audit {
    /// `None` for quotas without a reference: those without a limit, and logs, which cannot count more than their limit.
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

    /// How many of the units that were admitted at `at` were above the limit: by the reference's answer to whether all of them
    /// would fit.
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

    /// Whether a refusal of `cost` units at `at` was false: by the reference's answer to a check of nothing.
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

    /// Whether a refusal at `at` was false, by an answer for that time which the reference gave later, when all earlier events had
    /// arrived. `now` is when the reply came.
    ///
    /// Units that were taken in the meantime are missing in the answer, so not every false refusal is found. Once the
    /// reference is in another window, it says nothing about the one at `at`.
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

    /// Whether the reference that gave this answer for `at` is in a later window, or a later part of one: units of `at` count
    /// there.
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

    /// The tolerance of a comparison, in addition to the time that it took to send the event: 10 ms.
    ///
    /// A bucket that counts units late has refilled less in the meantime than it should. So for a slow bucket it is half the
    /// time of a unit, and at most 10 s.
    pub(super) fn tolerance(&self) -> Tick {
        match self.shape {
            Shape::Bucket => (self.time_of(1) / 2).clamp(TOLERANCE, MOST_TOLERANCE),
            _ => TOLERANCE,
        }
    }

    /// Whether an event that took so long to send makes the reference wrong by more than the tolerance.
    pub(super) fn is_late(&self, took: Tick) -> bool {
        matches!(self.shape, Shape::Bucket) && took > self.tolerance()
    }

    /// Whether nothing that was decided at `at` counts any more.
    pub(super) fn has_forgotten(&self, at: Tick, now: Tick) -> bool {
        matches!(self.shape, Shape::Fixed) && self.is_over(at, now)
    }

    /// Until when units that were taken at `at` weigh, as a refund has to say; `by_rule` is what the rule's own state said.
    pub(super) fn fresh_at(&self, at: Tick, units: u64, by_rule: Tick) -> Tick {
        let fresh_at = match self.shape {
            // Behind whatever was there.
            Shape::Bucket => return by_rule.max(at.saturating_add(self.time_of(units))),
            Shape::Fixed => (at / self.period + 1).checked_mul(self.period),
            Shape::Sliding => (at / self.period + 2).checked_mul(self.period),
            Shape::Buckets(width, buckets) => (at / width + buckets + 1).checked_mul(width),
        };
        fresh_at.unwrap_or(by_rule)
    }

    /// Whether what was decided at `at` counts in a window that is over at `now`.
    pub(super) fn is_over(&self, at: Tick, now: Tick) -> bool {
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
