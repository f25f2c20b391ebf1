//! GCRA: units evenly spaced, with a burst.
//!
//! # Promise
//!
//! In every window of length `w`, whatever its start, at most
//!
//! ```text
//! burst + ⌊rate · w⌋
//! ```
//!
//! units are admitted. After a denial the next unit fits exactly when `1 / rate` has paid for it.
//!
//! The name is that of the *generic cell rate algorithm* in its form of virtual scheduling (ITU-T I.371; ATM Forum Traffic
//! Management 4.0). One number is kept: the theoretical arrival time `tat`, at which all that was admitted is paid back.
//! With `T = period / rate`, the time of a unit, a request of `c` units at `now` fits when
//!
//! ```text
//! max(tat, now) + c · T − now ≤ burst · T
//! ```
//!
//! and then `tat` becomes `max(tat, now) + c · T`. The standard writes its tolerance as `τ = (burst − 1) · T`.
//!
//! # Worst case
//!
//! The burst defaults to the limit, and then a client that was quiet gets nearly twice the limit within one window: the
//! burst at once, and what comes back in the same window. 100 a minute admit up to 199 in a minute. Set the
//! [burst](crate::Quota::burst) apart where that matters: `Quota::gcra(100, MINUTE).burst(10)` admits at most 109.
//!
//! # Two limits on one state
//!
//! Plans of a rule, and two versions of a service while one replaces the other, share the state of a client. Units that
//! were taken under one are used under the other, and whoever took last says how fast they come back. A version asks for
//! what fits into its own burst; what is used beyond that is not forgotten. So with two of them, `(B1, r1)` and
//! `(B2, r2)`, asked in any order and at the same time, every window of length `w` admits together at most
//!
//! ```text
//! max(B1, B2) + ⌊max(r1, r2) · w⌋
//! ```
//!
//! and of that the first alone at most `B1 + ⌊max(r1, r2) · w⌋`. Where one has the larger burst and the faster rate, that
//! is what it admits by itself. Where one has the larger burst and the other the faster rate, it is more than either does,
//! and it can be reached: units come back as fast as the one says, and the other takes the whole of its burst at the end.
//! With more than two it is the largest burst and the fastest rate.
//!
//! A denial takes nothing, and leaves a state to the quota that wrote it: the units come back at that one's rate until
//! some are taken under another, and `retry` says when that is enough. Only a quota with a faster rate makes the state its
//! own at once, and only what it can hold. So a faster rate is in force with the first denial, but after a change to a
//! smaller burst as well, what is used beyond the burst comes back at the old rate first: for at most
//! `(B1 − B2 + cost) / r1`. Each time that a state changes hands, less than the fraction of a microsecond is rounded
//! against the client.
//!
//! # Exactness
//!
//! `T` is a fraction of microseconds in lowest terms, and the arrival time carries the remainder. Nothing is lost at 7 a
//! second, at 999 983 a second, or at one a day. Numbers that could not be counted exactly are refused by
//! [`Quota::validate`](crate::Quota::validate).
//!
//! # State
//!
//! 16 bytes; 43 to 64 bytes a key in the memory store.
//!
//! # When to take it, and when not
//!
//! Take it unless something speaks against it: it is exact, it is smooth, it needs the least state, and clients that obey
//! `Retry-After` are spread by themselves. Not where the number in the contract is "never more than n in any minute":
//! take [`sliding_log`](crate::algorithm::sliding_log) or [`sliding_buckets`](crate::algorithm::sliding_buckets). Not for
//! a quota that people expect to start anew on the hour: take [`fixed_window`](crate::algorithm::fixed_window).
//!
//! [`token_bucket`](crate::algorithm::token_bucket) and [`leaky_bucket`](crate::algorithm::leaky_bucket) are the same
//! function, said with other words.
//!
//! # Examples
//!
//! With the burst that is the limit:
//!
//! ```
//! use tollgate_core::{
//!     Quota, SECOND,
//!     algorithm::{Algorithm, Gcra, Retry},
//! };
//!
//! let quota = Gcra::new(&Quota::gcra(7, SECOND)).expect("a valid quota");
//! let mut state = Default::default();
//! let now = 1_700_000_000_000_000;
//! quota.take(&mut state, now, 7);
//! // A seventh of a second is 142 857 and 1/7 µs.
//! assert_eq!(quota.assess(&state, now, 1).retry, Retry::after_micros(142_858));
//! ```
//!
//! Evenly spaced, with a burst of one:
//!
//! ```
//! use tollgate_core::{
//!     Quota, SECOND,
//!     algorithm::{Algorithm, Gcra},
//! };
//!
//! let quota = Gcra::new(&Quota::gcra(10, SECOND).burst(1)).expect("a valid quota");
//! let mut state = Default::default();
//! let now = 1_700_000_000_000_000;
//! quota.take(&mut state, now, 1);
//! assert!(!quota.assess(&state, now + 99_999, 1).fits);
//! assert!(quota.assess(&state, now + 100_000, 1).fits);
//! ```

use crate::{
    algorithm::assessment::{Algorithm, Assessment, LearnedBound, Retry, Taken},
    quota::{AlgorithmKind, Interval, Quota},
    time::{Tick, micros},
};

/// A quota of GCRA, token bucket or leaky bucket, made ready: the three are one state machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gcra {
    /// `T` in lowest terms is `numerator / denominator` µs; spans are mixed numbers over `denominator`.
    interval: Span,
    denominator: u64,
    numerator: u64,
    tolerance: Span,
    burst: u64,
    /// Units per µs, and per 1/denominator µs: a first guess that is then made exact.
    units_per_tick: f64,
    units_per_rest: f64,
    /// Whether the tolerance in 1/denominator µs, and a unit more, stays within 62 bits.
    narrow: bool,
    /// ⌊(2^64 − 1) / numerator⌋
    inverse: u64,
}

/// A mixed number of microseconds: `whole + rest / denominator`, with `rest < denominator`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    whole: u64,
    rest: u64,
}

/// 16 bytes: the theoretical arrival time, as whole microseconds and a remainder in units of the quota's denominator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcraState {
    tat: Tick,
    rest: u32,
}

impl GcraState {
    /// The theoretical arrival time, rounded down to microseconds.
    #[must_use]
    pub const fn tat(&self) -> Tick {
        self.tat
    }

    /// What the arrival time has beyond whole microseconds, in units of 1/[`denominator`](Gcra::denominator) µs.
    #[must_use]
    pub const fn rest(&self) -> u32 {
        self.rest
    }
}

impl Gcra {
    /// The denominator of the remainder that a state carries.
    #[must_use]
    pub const fn denominator(&self) -> u64 {
        self.denominator
    }

    /// Leaves no more than the burst less `units` at `at`: for units that are out of the bucket and may come back.
    ///
    /// `units` above the burst are the burst.
    pub fn hold_back(&self, state: &mut GcraState, at: Tick, units: u64) {
        if units == 0 {
            return;
        }
        let held = Self::state(at, self.span_of(units.min(self.burst)));
        if (held.tat, held.rest) > (state.tat, state.rest) {
            *state = held;
        }
    }

    /// Puts `units` back into the bucket, up to the burst: for units that were taken in advance and are not needed.
    ///
    /// Unlike a [refund](Algorithm::refund) it does not ask what time has given back since. The caller knows that nothing
    /// has: see [`hold_back`](Self::hold_back).
    pub fn put_back(&self, state: &mut GcraState, now: Tick, units: u64) {
        let ahead = Self::ahead(state, now);
        *state = Self::state(
            now,
            self.difference(ahead, self.span_of(units.min(self.burst))),
        );
    }

    /// The earliest arrival time of a state that is fresh at `fresh_at`, to the tick, and that lets `cost` units pass at
    /// `retry_at`, to the tick, where that is known: what an answer tells of the state behind it.
    #[must_use]
    pub fn earliest(&self, fresh_at: Tick, retry_at: Option<(Tick, u64)>) -> GcraState {
        if self.denominator == 1 {
            return GcraState {
                tat: fresh_at,
                rest: 0,
            };
        }
        // Both ticks were rounded up from within the microsecond before.
        let within = |tick: Tick| Span {
            whole: tick.saturating_sub(1),
            rest: 1,
        };
        let mut earliest = within(fresh_at);
        if let Some((retry_at, cost)) = retry_at.filter(|(_, cost)| *cost <= self.burst) {
            let then = self.sum(within(retry_at), self.tolerance);
            let by_retry = self.difference(then, self.span_of(cost));
            // A later one says nothing of the state: the cost waits for units that are held back.
            if by_retry.whole < fresh_at {
                earliest = earliest.max(by_retry);
            }
        }
        Self::state(
            earliest.whole,
            Span {
                whole: 0,
                rest: earliest.rest,
            },
        )
    }

    /// `units · T`. `units` is at most the burst, so that no product leaves 53 bits.
    #[inline]
    fn span_of(&self, units: u64) -> Span {
        self.sum(
            Span::default(),
            Span {
                whole: units * self.interval.whole,
                rest: units * self.interval.rest,
            },
        )
    }

    /// `a + b`, where `b.rest` may be above the denominator.
    #[inline(always)]
    fn sum(&self, a: Span, b: Span) -> Span {
        // A state of a clock that was set far ahead and back may lie at the end of time.
        let whole = a.whole.saturating_add(b.whole);
        let rest = a.rest + b.rest;
        if rest < self.denominator {
            Span { whole, rest }
        } else if rest - self.denominator < self.denominator {
            Span {
                whole: whole.saturating_add(1),
                rest: rest - self.denominator,
            }
        } else {
            Span {
                whole: whole.saturating_add(rest / self.denominator),
                rest: rest % self.denominator,
            }
        }
    }

    /// `a − b`, at least zero.
    #[inline(always)]
    fn difference(&self, a: Span, b: Span) -> Span {
        if a <= b {
            Span::default()
        } else if a.rest >= b.rest {
            Span {
                whole: a.whole - b.whole,
                rest: a.rest - b.rest,
            }
        } else {
            Span {
                whole: a.whole - b.whole - 1,
                rest: a.rest + self.denominator - b.rest,
            }
        }
    }

    /// How many whole units lie in a span, which is at most the tolerance: ⌊span / T⌋.
    #[inline(always)]
    fn units_in(&self, span: Span) -> u64 {
        if !self.narrow {
            return self.units_in_wide(span);
        }
        // In 1/denominator µs. Multiplying by the inverse instead of dividing falls short by one at most: the inverse is
        // short by less than 2, and `have` is below 2^62.
        let have = span.whole * self.denominator + span.rest;
        let guess = ((u128::from(have) * u128::from(self.inverse)) >> 64) as u64;
        guess + u64::from(have - guess * self.numerator >= self.numerator)
    }

    #[cold]
    fn units_in_wide(&self, span: Span) -> u64 {
        // The guess is off by a few at most; the comparison is exact. Without the remainder it would be off by all the
        // units of a microsecond, which may be billions.
        let guess =
            span.whole as f64 * self.units_per_tick + span.rest as f64 * self.units_per_rest;
        let have = u128::from(span.whole) * u128::from(self.denominator) + u128::from(span.rest);
        let cost = |units: u64| u128::from(units) * u128::from(self.numerator);
        let mut units = (guess as u64).min(self.burst);
        while cost(units) > have {
            units -= 1;
        }
        while units < self.burst && cost(units + 1) <= have {
            units += 1;
        }
        units
    }

    /// Until when units that were taken weigh: had they never been taken, the bucket could have been empty from
    /// `taken.fresh_at` on, so what lies behind it was given back by time. That tick was rounded up, and the part of a
    /// microsecond is lost; but the units reach to `at + cost · T` exactly, wherever the bucket stood.
    fn weighs_until(&self, taken: Taken, cost: u64) -> Span {
        let units = self.span_of(cost.min(self.burst));
        let rounded = Span {
            whole: taken.fresh_at,
            rest: 0,
        };
        let part = u64::from(self.denominator > 1);
        let down = Span {
            whole: taken.fresh_at.saturating_sub(part),
            rest: part,
        };
        let reach = Span {
            whole: taken.at.saturating_add(units.whole),
            rest: units.rest,
        };
        reach.min(rounded).max(down)
    }

    /// A span in 1/denominator µs: a unit is `numerator` of them.
    fn parts(&self, span: Span) -> u128 {
        u128::from(span.whole) * u128::from(self.denominator) + u128::from(span.rest)
    }

    fn span_from(&self, parts: u128) -> Span {
        let denominator = u128::from(self.denominator);
        Span {
            whole: u64::try_from(parts / denominator).unwrap_or(u64::MAX),
            // Below the denominator.
            rest: (parts % denominator) as u64,
        }
    }

    /// As many units of this quota as lie in a span of another one, in 1/denominator µs and rounded down.
    fn scaled(&self, before: &Self, span: Span) -> u128 {
        let parts = before.parts(span);
        let (old, new) = (u128::from(before.numerator), u128::from(self.numerator));
        // In two halves, so that no product leaves 128 bits.
        (parts / old)
            .saturating_mul(new)
            .saturating_add(parts % old * new / old)
    }

    /// Whether a unit takes less time than under another quota.
    fn is_faster_than(&self, other: &Self) -> bool {
        u128::from(self.numerator) * u128::from(other.denominator)
            < u128::from(other.numerator) * u128::from(self.denominator)
    }

    /// What is ahead of `now`: the debt that time has still to pay back.
    #[inline]
    fn ahead(state: &GcraState, now: Tick) -> Span {
        if state.tat < now {
            Span::default()
        } else {
            Span {
                whole: state.tat - now,
                rest: u64::from(state.rest),
            }
        }
    }

    /// What is ahead of `now`, at most the tolerance, in 1/denominator µs: a unit is `numerator` of them.
    fn owed(&self, state: &GcraState, now: Tick) -> u128 {
        self.parts(Self::ahead(state, now).min(self.tolerance))
    }

    #[inline]
    fn state(now: Tick, ahead: Span) -> GcraState {
        GcraState {
            tat: now.saturating_add(ahead.whole),
            // A remainder is below the denominator, which validation keeps within 32 bits.
            rest: ahead.rest as u32,
        }
    }

    /// What would be ahead after `cost` units, which are at most the burst.
    #[inline(always)]
    fn after(&self, ahead: Span, cost: u64) -> Span {
        if cost == 1 {
            self.sum(ahead, self.interval)
        } else {
            self.sum(ahead, self.span_of(cost))
        }
    }

    /// The answer, and what is ahead if the cost fits.
    #[inline(always)]
    fn answer(&self, ahead: Span, cost: u64) -> (Assessment, Span) {
        if cost == 0 || cost > self.burst || ahead > self.tolerance {
            return (self.answer_at_the_edge(ahead, cost), ahead);
        }
        if self.denominator == 1 && self.narrow {
            return self.answer_in_whole_ticks(ahead.whole, cost);
        }
        let after = self.after(ahead, cost);
        if after <= self.tolerance {
            let remaining = self.units_in(self.difference(self.tolerance, after));
            let answer = Assessment {
                fits: true,
                remaining,
                reset_after: ceil(after),
                retry: if remaining < cost {
                    self.wait(after, cost)
                } else {
                    Retry::Now
                },
            };
            return (answer, after);
        }
        let answer = Assessment {
            fits: false,
            // Where one unit does not fit, none is left.
            remaining: if cost == 1 {
                0
            } else {
                self.units_in(self.difference(self.tolerance, ahead))
            },
            reset_after: ceil(ahead),
            retry: Retry::after_micros(ceil(self.difference(after, self.tolerance))),
        };
        (answer, ahead)
    }

    /// When `cost` units fit that do not fit now. They are at most the burst.
    fn wait(&self, ahead: Span, cost: u64) -> Retry {
        let after = self.after(ahead, cost);
        Retry::after_micros(ceil(self.difference(after, self.tolerance)))
    }

    /// The same where a unit takes a whole number of microseconds, as it does at most rates that people choose: there are
    /// no remainders.
    #[inline(always)]
    fn answer_in_whole_ticks(&self, ahead: u64, cost: u64) -> (Assessment, Span) {
        let tolerance = self.tolerance.whole;
        let after = ahead + cost * self.numerator;
        let fits = after <= tolerance;
        let then = if fits { after } else { ahead };
        let left = tolerance - then;
        let guess = ((u128::from(left) * u128::from(self.inverse)) >> 64) as u64;
        // What the cost lacks: now if it is denied, the next time if it fits.
        let lacks = (cost * self.numerator).saturating_sub(left);
        let answer = Assessment {
            fits,
            remaining: guess + u64::from(left - guess * self.numerator >= self.numerator),
            reset_after: then,
            retry: if lacks == 0 {
                Retry::Now
            } else {
                Retry::after_micros(lacks)
            },
        };
        (
            answer,
            Span {
                whole: then,
                rest: 0,
            },
        )
    }

    /// A cost of nothing, one that never fits, or a state beyond the tolerance.
    #[cold]
    fn answer_at_the_edge(&self, ahead: Span, cost: u64) -> Assessment {
        // Beyond the tolerance a clock went back, or the burst was lowered. A denial repairs that.
        let ahead = ahead.min(self.tolerance);
        let remaining = self.units_in(self.difference(self.tolerance, ahead));
        Assessment {
            fits: cost == 0,
            remaining,
            reset_after: ceil(ahead),
            retry: if cost == 0 && remaining > 0 {
                Retry::Now
            } else if cost > self.burst {
                Retry::Never
            } else {
                self.wait(ahead, cost.max(1))
            },
        }
    }
}

#[inline]
fn ceil(span: Span) -> u64 {
    span.whole + u64::from(span.rest > 0)
}

impl Algorithm for Gcra {
    type State = GcraState;

    fn new(quota: &Quota) -> Option<Self> {
        if !matches!(
            quota.algorithm(),
            AlgorithmKind::TokenBucket | AlgorithmKind::Gcra | AlgorithmKind::LeakyBucket
        ) || quota.validate().is_err()
        {
            return None;
        }
        let Interval {
            numerator,
            denominator,
        } = Interval::of(quota.rate(), micros(quota.period()));
        let mut arrival = Self {
            interval: Span {
                whole: numerator / denominator,
                rest: numerator % denominator,
            },
            denominator,
            numerator,
            tolerance: Span::default(),
            burst: quota.limit(),
            units_per_tick: denominator as f64 / numerator as f64,
            units_per_rest: 1.0 / numerator as f64,
            narrow: false,
            inverse: u64::MAX / numerator,
        };
        arrival.tolerance = arrival.span_of(arrival.burst);
        let tolerance = u128::from(arrival.tolerance.whole) * u128::from(denominator)
            + u128::from(arrival.tolerance.rest);
        arrival.narrow = tolerance + u128::from(numerator) < 1 << 62;
        Some(arrival)
    }

    #[inline]
    fn assess(&self, state: &GcraState, now: Tick, cost: u64) -> Assessment {
        self.answer(Self::ahead(state, now), cost).0
    }

    #[inline(always)]
    fn acquire(&self, state: &mut GcraState, now: Tick, cost: u64) -> Assessment {
        let (answer, after) = self.answer(Self::ahead(state, now), cost);
        if answer.fits && cost > 0 {
            *state = Self::state(now, after);
        }
        answer
    }

    #[inline]
    fn take(&self, state: &mut GcraState, now: Tick, cost: u64) {
        if cost > 0 && cost <= self.burst {
            *state = Self::state(now, self.sum(Self::ahead(state, now), self.span_of(cost)));
        }
    }

    fn repair(&self, state: &mut GcraState, now: Tick) {
        let ahead = Self::ahead(state, now);
        if ahead > self.tolerance {
            *state = Self::state(now, self.tolerance);
        }
    }

    fn refund(&self, state: &mut GcraState, now: Tick, taken: Taken, cost: u64) {
        let weight = self.difference(
            self.weighs_until(taken, cost),
            Span {
                whole: now,
                rest: 0,
            },
        );
        let back = self.span_of(cost.min(self.burst)).min(weight);
        *state = Self::state(now, self.difference(Self::ahead(state, now), back));
    }

    fn refund_converted(
        &self,
        before: &Self,
        state: &mut GcraState,
        now: Tick,
        taken: Taken,
        cost: u64,
    ) {
        let since = u128::from(now.saturating_sub(taken.at)) * u128::from(self.denominator);
        // From when they were taken, by this rate if it is the faster one; else until now by the other.
        let is_faster = self.is_faster_than(before);
        let from = Span {
            whole: if is_faster { taken.at } else { now },
            rest: 0,
        };
        let weight = before.difference(before.weighs_until(taken, cost), from);
        let weight = weight.min(before.tolerance);
        let mut back = self.scaled(before, weight);
        if is_faster {
            back = back.saturating_sub(since);
        }
        back = back.min(u128::from(cost) * u128::from(self.numerator));
        let ahead = Self::ahead(state, now);
        let level = self.parts(ahead).saturating_add(since);
        if before.burst > self.burst && level >= self.parts(self.tolerance) {
            // It may have been full when it was converted, and have forgotten what was beyond that.
            let forgotten = u128::from(before.burst - self.burst) * u128::from(self.numerator);
            back = back.saturating_sub(forgotten);
        }
        let back = self.span_from(back);
        *state = Self::state(now, self.difference(ahead, back));
    }

    #[inline]
    fn fresh_at(&self, state: &GcraState) -> Tick {
        state.tat.saturating_add(u64::from(state.rest > 0))
    }

    fn convert(&self, before: &Self, state: &GcraState, now: Tick) -> GcraState {
        if before == self {
            return *state;
        }
        // Used units are `ahead / T`; they weigh `T` of the new quota. A state beyond the old tolerance holds the burst.
        let ticks = before.owed(state, now);
        // used = ticks / before.numerator units, in lowest terms of the old quota; the burst is the most there can be.
        let full = u128::from(self.burst) * u128::from(before.numerator);
        if ticks >= full {
            return Self::state(now, self.tolerance);
        }
        // new ahead · denominator = ticks · numerator / before.numerator, rounded up, computed in two halves so that no
        // product leaves 128 bits: ticks < burst · before.numerator ≤ 2^53 · 2^49.
        let old = u128::from(before.numerator);
        let new = u128::from(self.numerator);
        let (units, part) = (ticks / old, ticks % old);
        let scaled = units * new + (part * new).div_ceil(old);
        let denominator = u128::from(self.denominator);
        // Below burst · T of the new quota, which fits.
        Self::state(
            now,
            Span {
                whole: (scaled / denominator) as u64,
                rest: (scaled % denominator) as u64,
            },
        )
    }

    fn leaves_to(&self, writer: &Self, state: &GcraState, now: Tick) -> bool {
        let is_cut =
            writer.owed(state, now) > u128::from(self.burst) * u128::from(writer.numerator);
        is_cut || !self.is_faster_than(writer)
    }

    #[inline]
    fn learn(&self, state: &GcraState, _now: Tick) -> Option<LearnedBound> {
        Some(LearnedBound(state.tat, u64::from(state.rest)))
    }

    #[inline]
    fn assess_learned(&self, bound: LearnedBound, now: Tick, cost: u64) -> Option<Assessment> {
        let state = GcraState {
            tat: bound.0,
            rest: bound.1 as u32,
        };
        let ahead = Self::ahead(&state, now);
        // Beyond the tolerance: a denial has to repair the state first.
        if cost == 0 || ahead > self.tolerance {
            return None;
        }
        let (answer, _) = self.answer(ahead, cost);
        (!answer.fits).then_some(answer)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::time::SECOND;

    fn ready(quota: Quota) -> Gcra {
        Gcra::new(&quota).expect("a valid quota")
    }

    #[test]
    fn the_first_burst_passes_at_once_and_the_next_does_not() {
        let quota = ready(Quota::gcra(7, SECOND).burst(10));
        let mut state = GcraState::default();
        for left in (0..10).rev() {
            let answer = quota.assess(&state, 1_000, 1);
            assert_eq!((answer.fits, answer.remaining), (true, left));
            quota.take(&mut state, 1_000, 1);
        }
        let answer = quota.assess(&state, 1_000, 1);
        // A seventh of a second is 142 857 and 1/7 µs: one tick earlier it does not pass.
        assert_eq!(
            (answer.fits, answer.retry),
            (false, Retry::after_micros(142_858))
        );
        assert!(quota.assess(&state, 1_000 + 142_858, 1).fits);
        assert!(!quota.assess(&state, 1_000 + 142_857, 1).fits);
    }

    #[test]
    fn a_refund_gives_back_no_more_than_the_units_still_weigh() {
        let quota = ready(Quota::token_bucket(10).refill(1, SECOND));
        let mut state = GcraState::default();
        let start = 1_000_000_000;
        quota.take(&mut state, start, 5);
        let taken = Taken {
            at: start,
            fresh_at: quota.fresh_at(&state),
        };
        // A hundred seconds later the bucket has been full again; other units are taken, and the refund comes late.
        let later = start + 100_000_000;
        quota.take(&mut state, later, 5);
        quota.refund(&mut state, later, taken, 5);
        assert_eq!(quota.assess(&state, later, 0).remaining, 5);
        // In time it gives everything back.
        let mut state = GcraState::default();
        quota.take(&mut state, start, 5);
        quota.refund(&mut state, start, taken, 5);
        assert_eq!(quota.assess(&state, start, 0).remaining, 10);
    }

    #[test]
    fn what_an_answer_tells_of_a_state_is_never_later_than_the_state() {
        let quota = ready(Quota::gcra(7, SECOND).burst(10));
        let mut state = GcraState::default();
        quota.take(&mut state, 1_000, 3);
        let fresh_at = quota.fresh_at(&state);
        let Retry::After(wait) = quota.assess(&state, 1_000, 8).retry else {
            panic!("eight do not fit");
        };
        let told = |wait: u64| quota.earliest(fresh_at, Some((1_000 + wait, 8)));
        let exact = told(wait.as_micros() as u64);
        assert!(
            exact.tat <= state.tat && exact.tat + 1 >= state.tat,
            "{exact:?}"
        );
        // Eight wait for something else, until long after the state is fresh.
        assert!(told(10_000_000).tat <= state.tat);
    }

    #[test]
    fn a_raised_limit_is_in_force_at_once_and_keeps_what_was_used() {
        let small = ready(Quota::gcra(10, Duration::from_secs(60)));
        let large = ready(Quota::gcra(100, Duration::from_secs(60)));
        let now = 1_000_000_000_000;
        let mut state = GcraState::default();
        small.take(&mut state, now, 10);
        let carried = large.convert(&small, &state, now);
        assert_eq!(large.assess(&carried, now, 0).remaining, 90);
        let back = small.convert(&large, &carried, now);
        assert_eq!(small.assess(&back, now, 0).remaining, 0);
    }
}
