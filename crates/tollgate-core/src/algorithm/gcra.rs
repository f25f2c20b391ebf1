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
//! Plans of a rule share the state of a client, and so do two versions of a service during a deployment. Units taken under
//! one quota count as used under the other, and the quota that took last sets the rate at which they refill. Each quota
//! admits what fits its own burst; usage beyond that burst is kept. So two quotas `(B1, r1)` and `(B2, r2)`, used in any
//! order or at the same time, together admit in every window of length `w` at most
//!
//! ```text
//! max(B1, B2) + ⌊max(r1, r2) · w⌋
//! ```
//!
//! and the first of them at most `B1 + ⌊max(r1, r2) · w⌋` of these. If one quota has both the larger burst and the faster
//! rate, this is what it admits alone. If one has the larger burst and the other the faster rate, it is more than either
//! admits alone, and it can be reached: units refill at the faster rate, and then the other quota takes its whole burst.
//! With more than two quotas, the largest burst and the fastest rate count.
//!
//! A denial takes nothing, and leaves the state to the quota that wrote it: units refill at the rate of that quota until
//! some are taken under another one, and `retry` takes that into account. Only a quota with a faster rate takes a state over
//! on a denial, and only if the usage fits its burst. So a faster rate applies from the first denial on; but if the burst
//! shrinks too, usage beyond the new burst first refills at the old rate, for at most `(B1 − B2 + cost) / r1`. Each
//! conversion of a state rounds less than a microsecond against the client.
//!
//! # Waiting
//!
//! A rule that [waits](crate::Rule::wait) delays a request that will fit within `at_most`, and admits it then: the leaky bucket
//! as a queue, as in nginx's `limit_req … burst`. Its place is taken in the store at once, as its units: so all processes
//! share one order, and none polls. The rules of the queue, with `T` the time of a unit and `τ = burst · T`:
//!
//! - **Instant.** `c` units start at `s = max(now, tat + c · T − τ)`; those of several rules at the latest `s`.
//! - **Admission.** The patience is the smallest `at_most` of the request's rules that wait, or less where the caller says so. A
//!   request is admitted if `s − now` is within it, and all rules that do not wait fit now.
//! - **Debit.** `tat = max(tat, s) + c · T`. Rules that do not wait, and slots, are charged by a
//!   [second call](crate::Limiter::start) at `s`. If they no longer fit then, the units go back as after a cancellation.
//! - **Order.** Requests that charge the same rules and keys start first in, first out.
//! - **Cancellation.** A place goes back if no request has taken one behind it, and the state was neither repaired nor converted
//!   since: then `tat` is what it was before. Otherwise the units lapse ([`lapsed_units`](crate::store::RuleStore::lapsed_units)): the
//!   requests behind them already know when they start.
//! - **Denial.** It takes no units and frees none: a state is repaired to `now + τ + at_most`. `retry` says when the request
//!   fits into the queue, also into one that a rule with a longer wait has left.
//! - **Numbers** of an admitted request are as of its start, all others as of now, with the queue. Room in the queue is not
//!   `remaining`. A threshold is read as of now, so that one above the burst observes the queue.
//! - **Change of the quota.** A queue keeps its length in time, and instants that were given stay.
//! - **Shadows** are decided when the enforced rules let the request start, and never move that.
//!
//! In any window of length `w` at most `burst + ⌊rate · (w + J)⌋` units start, where `J` is how late a start may be: the reply,
//! a timer, and the microsecond that a start is rounded up to. A soft limit (wait above S, deny above B) is a burst of S with
//! `at_most = (B − S) · T`.
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
//! [`token_bucket`](crate::algorithm::token_bucket) and [`leaky_bucket`](crate::algorithm::leaky_bucket) are the same function with
//! other parameters.
//!
//! # Examples
//!
//! With the burst that is the limit:
//!
//! ```
//! use tollgate_core::{Quota, Retry, SECOND, algorithm::{Algorithm, Gcra}};
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
    algorithm::{
        assessment::{Algorithm, Assessment, DenyBound, Instant, Retry, Taken},
        gcra_state::{CUT_STEP, GcraState},
    },
    algorithm_kind::AlgorithmKind,
    quota::{Quota, lowest_terms},
    time::{Tick, micros},
};
use std::{num::NonZeroU64, time::Duration};

/// A quota of GCRA, token bucket or leaky bucket, made ready: the three are one state machine.
///
/// `T` in lowest terms is `numerator / denominator` µs. Spans of time are whole numbers of 1/denominator µs, which are called
/// *parts* here: a unit is `numerator` parts, and no fraction is left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gcra {
    numerator: NonZeroU64,
    denominator: u64,
    burst: u64,
    /// `τ` in µs, where a part is one and a state is no more than its arrival time, as of most quotas. Else 0.
    whole_tolerance: u64,
    /// `τ` in parts.
    tolerance: u128,
    /// How far ahead a state may lie, in parts: the tolerance, and what requests wait at most, or what may be owed.
    reach: u128,
    /// The most units that may be owed. Where requests wait, none.
    debt: u64,
}

impl Gcra {
    /// The denominator of the remainder that a state carries.
    #[must_use]
    pub const fn denominator(&self) -> u64 {
        self.denominator
    }

    /// Denies by the [bound](Algorithm::deny_bound) of an earlier denial what would not fit within `patience` µs either: for a rule
    /// whose requests [wait](crate::Rule::wait). `None`: the bound does not decide, read the state.
    ///
    /// The answer says when the same request fits so that it may wait.
    #[must_use]
    pub fn deny_within(
        &self,
        bound: DenyBound,
        now: Tick,
        cost: u64,
        patience: u64,
    ) -> Option<Assessment> {
        let state = &GcraState::new(bound.0, bound.1 as u32, 0);
        let ahead = self.ahead(state, now);
        // Beyond the reach: a denial has to repair the state first.
        if cost == 0 || ahead > self.reach {
            return None;
        }
        let patience = self.parts(patience).min(self.reach - self.tolerance);
        let lacks = self.lacks(state, now, cost);
        if cost <= self.burst && lacks <= patience {
            return None;
        }
        let answer = self.answer(state, now, cost);
        let retry = match answer.retry {
            Retry::After(_) => Retry::after_micros(self.micros(lacks.saturating_sub(patience))),
            other => other,
        };
        Some(Assessment { retry, ..answer })
    }

    /// The earliest arrival time of a state that is fresh at `fresh_at`, to the tick, and that lets `cost` units pass at
    /// `retry_at`, to the tick, where that is known: what an answer tells of the state behind it.
    pub fn earliest(&self, fresh_at: Tick, retry_at: Option<(Tick, u64)>) -> GcraState {
        let mut earliest = self.rounded_up(fresh_at);
        if let Some((retry_at, cost)) = retry_at.filter(|(_, cost)| *cost <= self.burst) {
            let then = self.rounded_up(retry_at) + self.tolerance;
            let by_retry = then.saturating_sub(self.span_of(cost));
            // A later one says nothing of the state: the cost waits for units that are held back.
            if by_retry < self.parts(fresh_at) {
                earliest = earliest.max(by_retry);
            }
        }
        self.state(0, earliest)
    }

    /// A time in parts.
    #[inline]
    fn parts(&self, tick: Tick) -> u128 {
        u128::from(tick) * u128::from(self.denominator)
    }

    /// The earliest time in parts that is this tick when it is rounded up.
    fn rounded_up(&self, tick: Tick) -> u128 {
        self.parts(tick)
            .saturating_sub(u128::from(self.denominator - 1))
    }

    /// `units · T`.
    #[inline]
    fn span_of(&self, units: u64) -> u128 {
        u128::from(units) * u128::from(self.numerator.get())
    }

    /// A span of at most the tolerance in microseconds, rounded up.
    #[inline]
    fn micros(&self, span: u128) -> u64 {
        if self.denominator == 1 {
            // As at most rates that people choose. It is below 2^64, as a tolerance is.
            return span as u64;
        }
        let (whole, rest) = divide(span, self.denominator);
        whole + u64::from(rest > 0)
    }

    /// Until when units that were taken weigh: had they never been taken, the bucket could have been empty from
    /// `taken.fresh_at` on, so what lies behind it was given back by time. That tick was rounded up, and the part of a
    /// microsecond is lost; but the units reach to `at + cost · T` exactly, wherever the bucket stood.
    fn weighs_until(&self, taken: Taken, cost: u64) -> u128 {
        let reach = self.parts(taken.at) + self.span_of(cost.min(self.burst));
        let latest = self.parts(taken.fresh_at);
        reach.min(latest).max(self.rounded_up(taken.fresh_at))
    }

    /// As many units of this quota as lie in a span of another one, rounded down.
    fn scaled(&self, before: &Self, span: u128) -> u128 {
        let (old, new) = (
            u128::from(before.numerator.get()),
            u128::from(self.numerator.get()),
        );
        // In two halves, so that no product leaves 128 bits.
        (span / old)
            .saturating_mul(new)
            .saturating_add(span % old * new / old)
    }

    /// Whether a unit takes less time than under another quota.
    fn is_faster_than(&self, other: &Self) -> bool {
        u128::from(self.numerator.get()) * u128::from(other.denominator)
            < u128::from(other.numerator.get()) * u128::from(self.denominator)
    }

    /// What is ahead of `now`: what time has still to pay back.
    #[inline]
    fn ahead(&self, state: &GcraState, now: Tick) -> u128 {
        if state.tat < now {
            0
        } else {
            self.parts(state.tat - now) + u128::from(state.rest)
        }
    }

    /// What is ahead of `now`, at most the tolerance.
    fn owed(&self, state: &GcraState, now: Tick) -> u128 {
        self.ahead(state, now).min(self.tolerance)
    }

    #[inline]
    fn state(&self, now: Tick, ahead: u128) -> GcraState {
        let (whole, rest) = match u64::try_from(ahead) {
            Ok(ahead) if self.denominator == 1 => (ahead, 0),
            _ => divide(ahead, self.denominator),
        };
        GcraState {
            // A state of a clock that was set far ahead and back may lie at the end of time.
            tat: now.saturating_add(whole),
            // A remainder is below the denominator, which validation keeps within 32 bits.
            rest: rest as u32,
            cut: 0,
        }
    }

    /// Moves the arrival time of a state.
    #[inline]
    fn set(&self, state: &mut GcraState, to: GcraState) {
        (state.tat, state.rest) = (to.tat, to.rest);
    }

    /// How far ahead this state may lie. One that owes nothing lies beyond the tolerance only after a clock went back.
    fn reach_of(&self, state: &GcraState) -> u128 {
        match self.debt > 0 && state.cut == 0 {
            true => self.tolerance,
            false => self.reach,
        }
    }

    fn answer(&self, state: &GcraState, now: Tick, cost: u64) -> Assessment {
        match self.answer_in_64_bits(state, now, cost) {
            Some((_, answer)) => answer,
            None => self.answer_in_128_bits(state, now, cost),
        }
    }

    fn answer_in_128_bits(&self, state: &GcraState, now: Tick, cost: u64) -> Assessment {
        // Beyond the tolerance requests wait. Beyond the reach a clock went back, or the burst was lowered: a denial repairs
        // that.
        let ahead = self.ahead(state, now).min(self.reach_of(state));
        let after = ahead + self.span_of(cost);
        let fits = cost == 0 || cost <= self.burst && after <= self.tolerance;
        let then = if fits { after } else { ahead };
        let left = self.tolerance.saturating_sub(then);
        // What the same cost, or one unit, waits for after this answer. Behind a cost that fits nothing is beyond the tolerance, so that
        // it is the cost alone, as far as it does not fit into what is left.
        let lacks = self.span_of(cost.max(1)) + then.saturating_sub(self.tolerance);
        Assessment {
            fits,
            remaining: divide(left, self.numerator.get()).0,
            reset_after: self.micros(then),
            retry: match cost > self.burst {
                true => Retry::Never,
                false => self.wait(lacks, left),
            },
        }
    }

    /// The answer where 64 bits are enough, and the state if it is taken. `None` where they are not, for a cost of nothing or one
    /// that never fits, and for a state beyond the tolerance.
    fn answer_in_64_bits(
        &self,
        state: &GcraState,
        now: Tick,
        cost: u64,
    ) -> Option<(GcraState, Assessment)> {
        let ahead = match state.tat.checked_sub(now) {
            None => 0,
            Some(ticks) => {
                let parts = ticks.checked_mul(self.denominator)?;
                parts.checked_add(state.rest.into())?
            }
        };
        let room = u64::try_from(self.tolerance).ok()?.checked_sub(ahead)?;
        if cost == 0 || cost > self.burst {
            return None;
        }
        let span = cost * self.numerator.get();
        let (fits, ahead, left) = match room.checked_sub(span) {
            Some(left) => (true, ahead + span, left),
            None => (false, ahead, room),
        };
        let (whole, rest) = match self.denominator {
            1 => (ahead, 0),
            parts => (ahead / parts, ahead % parts),
        };
        let after = GcraState {
            tat: now.checked_add(whole)?,
            // A remainder is below the denominator, which validation keeps within 32 bits.
            rest: rest as u32,
            cut: if self.debt > 0 { 0 } else { state.cut },
        };
        let answer = Assessment {
            fits,
            remaining: left / self.numerator,
            reset_after: whole + u64::from(rest > 0),
            retry: self.wait(span.into(), left.into()),
        };
        Some((after, answer))
    }

    /// When `cost` fits, if the part `left` of it fits now.
    #[inline]
    fn wait(&self, cost: u128, left: u128) -> Retry {
        match cost.saturating_sub(left) {
            0 => Retry::Now,
            lacks => Retry::after_micros(self.micros(lacks)),
        }
    }

    /// How far `cost` units lie ahead beyond the tolerance, in parts: how long a request waits for them.
    fn lacks(&self, state: &GcraState, now: Tick, cost: u64) -> u128 {
        let ahead = self.ahead(state, now).min(self.reach);
        (ahead + self.span_of(cost)).saturating_sub(self.tolerance)
    }

    /// The queue behind a state, in parts of another quota: what lies ahead beyond the tolerance.
    fn queue_of(&self, before: &Self, state: &GcraState, now: Tick) -> u128 {
        if !before.waits() {
            return 0;
        }
        let ahead = before.ahead(state, now).min(before.reach);
        let queue = ahead.saturating_sub(before.tolerance);
        // A time keeps its length: at most ten years in parts of 32 bits.
        (queue * u128::from(self.denominator)).div_ceil(u128::from(before.denominator))
    }

    /// The state of another quota, whose used units stay used.
    fn convert_used(&self, before: &Self, state: &GcraState, now: Tick) -> GcraState {
        // Used units are `owed / T`; they weigh `T` of the new quota. A state beyond the old tolerance holds the burst.
        let owed = before.owed(state, now);
        let old = u128::from(before.numerator.get());
        let debt = self.span_of(before.debt(state, now));
        if owed >= u128::from(self.burst) * old {
            return self.state(now, self.tolerance + debt);
        }
        // owed · numerator / before.numerator, rounded up, computed in two halves so that no product leaves 128 bits:
        // owed < burst · before.numerator ≤ 2^53 · 2^49.
        let new = u128::from(self.numerator.get());
        let owed = owed / old * new + (owed % old * new).div_ceil(old);
        self.state(now, owed + debt)
    }
}

/// What a key may owe as a state on Redis has it: with 24 bits, rounded up. A clock that goes back leaves no more than that.
fn in_24_bits(units: u64) -> u64 {
    let bits = u64::BITS - units.saturating_sub(1).leading_zeros();
    let lost = bits.saturating_sub(24);
    units.div_ceil(1 << lost) << lost
}

/// The quotient, at most `u64::MAX`, and the remainder.
#[inline]
fn divide(parts: u128, by: u64) -> (u64, u64) {
    if let Ok(parts) = u64::try_from(parts) {
        return (parts / by, parts % by);
    }
    let wide = u128::from(by);
    // The remainder is below the divisor.
    (
        u64::try_from(parts / wide).unwrap_or(u64::MAX),
        (parts % wide) as u64,
    )
}

impl Algorithm for Gcra {
    type State = GcraState;

    fn new(quota: &Quota) -> Option<Self> {
        let quota = quota.valid_for(AlgorithmKind::Gcra)?;
        let (numerator, denominator) = lowest_terms(micros(quota.period()), quota.rate());
        let tolerance = u128::from(quota.limit()) * u128::from(numerator);
        Some(Self {
            numerator: NonZeroU64::new(numerator)?,
            denominator,
            burst: quota.limit(),
            whole_tolerance: match u64::try_from(tolerance) {
                Ok(tolerance) if denominator == 1 => tolerance,
                _ => 0,
            },
            tolerance,
            reach: tolerance,
            debt: 0,
        })
    }

    fn waiting(mut self, at_most: Duration) -> Self {
        self.reach = self.tolerance + u128::from(micros(at_most)) * u128::from(self.denominator);
        self
    }

    #[inline]
    fn waits(&self) -> bool {
        self.reach > self.tolerance && self.debt == 0
    }

    fn with_debt(mut self, at_most: u64) -> Self {
        self.debt = at_most;
        self.whole_tolerance = 0;
        self.reach = self.tolerance + self.span_of(in_24_bits(at_most));
        self
    }

    fn charge(&self, state: &mut GcraState, now: Tick, units: u64) -> u64 {
        let ahead = self.ahead(state, now).min(self.reach_of(state));
        let most = self.tolerance + self.span_of(self.debt);
        let taken = units.min(divide(most.saturating_sub(ahead), self.numerator.get()).0);
        if taken > 0 {
            let ahead = ahead + self.span_of(taken);
            *state = self.state(now, ahead);
            state.cut = u32::from(ahead > self.tolerance);
        }
        units - taken
    }

    fn debt(&self, state: &GcraState, now: Tick) -> u64 {
        let owed = self
            .ahead(state, now)
            .min(self.reach_of(state))
            .saturating_sub(self.tolerance);
        // At most the debt that is allowed.
        owed.div_ceil(u128::from(self.numerator.get())) as u64
    }

    fn without_repair(&self) -> Self {
        Self {
            reach: u128::MAX / 2,
            debt: 0,
            ..*self
        }
    }

    fn observe(&self, writer: &Self, state: &GcraState, now: Tick, cost: u64) -> Assessment {
        let product = u128::from(state.rest) * u128::from(self.denominator);
        let rest = product.div_ceil(u128::from(writer.denominator));
        let (whole, rest) = divide(rest, self.denominator);
        // A remainder is below the denominator, which validation keeps within 32 bits.
        let state = &GcraState::new(state.tat.saturating_add(whole), rest as u32, 0);
        self.without_repair().assess(state, now, cost)
    }

    fn instant(&self, state: &GcraState, now: Tick, cost: u64) -> Option<Instant> {
        if cost > self.burst {
            return None;
        }
        if cost == 0 {
            return Some(Instant::new(now, now));
        }
        let (whole, rest) = divide(self.lacks(state, now, cost), self.denominator);
        let floor = now.saturating_add(whole);
        Some(Instant::new(
            floor,
            floor.saturating_add(u64::from(rest > 0)),
        ))
    }

    fn take_from(
        &self,
        state: &mut GcraState,
        now: Tick,
        start: Instant,
        cost: u64,
    ) -> Option<GcraState> {
        if cost == 0 || cost > self.burst {
            return None;
        }
        let before = *state;
        let ahead = self.ahead(state, now).min(self.reach);
        let from = ahead.max(self.parts(start.floor.saturating_sub(now)));
        let after = (from + self.span_of(cost)).min(self.reach);
        let after = self.state(now, after);
        self.set(state, after);
        Some(before)
    }

    fn refund_queued(
        &self,
        state: &mut GcraState,
        now: Tick,
        taken: Taken,
        before: Option<GcraState>,
        cost: u64,
    ) -> bool {
        if !self.waits() {
            self.refund(state, now, taken, cost);
            return true;
        }
        // A unit takes a microsecond at least, so that any other take has moved the tick of the arrival time.
        let is_last = self.fresh_at(state) == taken.fresh_at;
        let is_cut = taken.at >> CUT_STEP < u64::from(state.cut);
        if !is_last || is_cut || taken.fresh_at <= now {
            return false;
        }
        let parts = self.parts(state.tat) + u128::from(state.rest);
        let earlier = parts.saturating_sub(self.span_of(cost));
        let back = match before {
            Some(before) => before,
            None => self.state(0, earlier),
        };
        self.set(state, back);
        true
    }

    #[inline]
    fn assess(&self, state: &GcraState, now: Tick, cost: u64) -> Assessment {
        self.answer(state, now, cost)
    }

    #[inline(always)]
    fn fit(&self, state: &GcraState, now: Tick, cost: u64) -> Option<(GcraState, Assessment)> {
        if self.whole_tolerance == 0 {
            let answered = self.answer_in_64_bits(state, now, cost);
            return answered.filter(|(_, answer)| answer.fits);
        }
        let ahead = state.tat.saturating_sub(now);
        let room = self.whole_tolerance.checked_sub(ahead)?;
        if cost == 0 || cost > self.burst {
            return None;
        }
        let span = cost * self.numerator.get();
        let left = room.checked_sub(span)?;
        let after = GcraState {
            tat: now.checked_add(ahead + span)?,
            ..*state
        };
        let answer = Assessment {
            fits: true,
            remaining: left / self.numerator,
            reset_after: ahead + span,
            retry: match span.saturating_sub(left) {
                0 => Retry::Now,
                lacks => Retry::after_micros(lacks),
            },
        };
        Some((after, answer))
    }

    #[inline]
    fn take(&self, state: &mut GcraState, now: Tick, cost: u64) {
        if cost > 0 && cost <= self.burst {
            let after = self.state(now, self.ahead(state, now) + self.span_of(cost));
            self.set(state, after);
            if self.debt > 0 {
                state.cut = 0;
            }
        }
    }

    /// Never nearer than what requests wait for: cutting to the burst would free everybody in the queue.
    fn repair(&self, state: &mut GcraState, now: Tick) {
        let reach = self.reach_of(state);
        if self.ahead(state, now) > reach {
            let before = *state;
            *state = self.state(now, reach);
            if self.waits() {
                state.cut_after(&before, now);
            } else {
                state.cut = before.cut;
            }
        }
    }

    fn refund(&self, state: &mut GcraState, now: Tick, taken: Taken, cost: u64) {
        let until = self.weighs_until(taken, cost);
        let weight = until.saturating_sub(self.parts(now));
        let back = self.span_of(cost.min(self.burst)).min(weight);
        let left = self.state(now, self.ahead(state, now).saturating_sub(back));
        self.set(state, left);
    }

    fn refund_converted(
        &self,
        before: &Self,
        state: &mut GcraState,
        now: Tick,
        taken: Taken,
        cost: u64,
    ) {
        let since = self.parts(now.saturating_sub(taken.at));
        // From when they were taken, by this rate if it is the faster one; else until now by the other.
        let is_faster = self.is_faster_than(before);
        let from = before.parts(if is_faster { taken.at } else { now });
        let weight = before.weighs_until(taken, cost).saturating_sub(from);
        let mut back = self.scaled(before, weight.min(before.tolerance));
        if is_faster {
            back = back.saturating_sub(since);
        }
        back = back.min(self.span_of(cost));
        let ahead = self.ahead(state, now);
        if before.burst > self.burst && ahead.saturating_add(since) >= self.tolerance {
            // It may have been full when it was converted, and have forgotten what was beyond that.
            back = back.saturating_sub(self.span_of(before.burst - self.burst));
        }
        let left = self.state(now, ahead.saturating_sub(back));
        self.set(state, left);
    }

    #[inline]
    fn fresh_at(&self, state: &GcraState) -> Tick {
        state.tat.saturating_add(u64::from(state.rest > 0))
    }

    fn convert(&self, before: &Self, state: &GcraState, now: Tick) -> GcraState {
        if before == self {
            return *state;
        }
        let queue = self.queue_of(before, state, now);
        let mut converted = match queue {
            0 => self.convert_used(before, state, now),
            // A full bucket, and the same queue behind it: instants that were given stay.
            queue => self.state(now, self.tolerance + queue),
        };
        if before.waits() || self.waits() {
            converted.cut_after(state, now);
        } else {
            let owes = before.debt(state, now) > 0;
            let ahead = self.ahead(&converted, now);
            converted.cut = u32::from(owes && ahead > self.tolerance);
        }
        converted
    }

    fn defers_to(&self, writer: &Self, state: &GcraState, now: Tick) -> bool {
        let is_cut = writer.owed(state, now) > writer.span_of(self.burst);
        // Its requests wait longer than ours: a repair would free them.
        let frees = self.queue_of(writer, state, now) > self.reach - self.tolerance;
        is_cut || frees || !self.is_faster_than(writer)
    }

    #[inline]
    fn deny_bound(&self, state: &GcraState, _now: Tick) -> Option<DenyBound> {
        Some(DenyBound(
            state.tat,
            u64::from(state.cut) << 32 | u64::from(state.rest),
        ))
    }

    #[inline]
    fn deny_by(&self, bound: DenyBound, now: Tick, cost: u64) -> Option<Assessment> {
        if self.waits() {
            return self.deny_within(bound, now, cost, u64::MAX);
        }
        let state = GcraState {
            tat: bound.0,
            rest: bound.1 as u32,
            cut: (bound.1 >> 32) as u32,
        };
        // Beyond the reach: a denial has to repair the state first.
        if cost == 0 || self.ahead(&state, now) > self.reach_of(&state) {
            return None;
        }
        let answer = self.answer(&state, now, cost);
        (!answer.fits).then_some(answer)
    }
}

#[cfg(test)]
mod tests;
