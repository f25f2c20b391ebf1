//! Fixed window: a count that starts anew at each boundary.
//!
//! # Promise
//!
//! Windows are aligned to the Unix epoch, number `⌊now / W⌋`, or to a [calendar](crate::Quota::calendar). In each of them at most
//!
//! ```text
//! limit
//! ```
//!
//! units are admitted. A window of an hour begins on the hour and one of a day at midnight, UTC, in every process. One of a week
//! begins on Thursdays at midnight, UTC, because the epoch was a Thursday; one of 30 days at no date of a calendar. Those of a
//! calendar begin with a month, a week or a day of a time zone, whatever its length.
//!
//! # Worst case
//!
//! `2 · limit` in a window that lies across a boundary: all of one at its end, and all of the next at its start. After a
//! denial everything comes back at once, and for all keys at the same instant: clients that obey `Retry-After` return
//! together, unless it is given jitter.
//!
//! # State
//!
//! The number of the window (of a calendar its end) and a count: 16 bytes; 43 to 64 bytes a key in the memory store.
//!
//! # When to take it, and when not
//!
//! Take it for quotas that people read and plan with ("1 000 an hour, anew on the hour"), for long windows, and for very
//! large limits. Not to protect something that breaks at twice the limit: take
//! [`gcra`](crate::algorithm::gcra), or [`sliding_window`](crate::algorithm::sliding_window) for the same price.
//!
//! # Examples
//!
//! ```
//! use tollgate_core::{MINUTE, Quota, Retry, algorithm::{Algorithm, FixedWindow}};
//!
//! let quota = FixedWindow::new(&Quota::fixed_window(100, MINUTE)).expect("a valid quota");
//! let mut state = Default::default();
//! // Ten seconds before the minute is over.
//! let now = 1_700_000_040_000_000 + 50_000_000;
//! quota.take(&mut state, now, 100);
//! assert_eq!(quota.assess(&state, now, 1).retry, Retry::after_micros(10_000_000));
//! // Then all comes back: 200 within these ten seconds.
//! assert_eq!(quota.assess(&state, now + 10_000_000, 100).remaining, 0);
//! assert!(quota.assess(&state, now + 10_000_000, 100).fits);
//! ```
//!
//! A change of the limit keeps the count:
//!
//! ```
//! use tollgate_core::{
//!     MINUTE, Quota,
//!     algorithm::{Algorithm, FixedWindow},
//! };
//!
//! let small = FixedWindow::new(&Quota::fixed_window(100, MINUTE)).expect("a valid quota");
//! let large = FixedWindow::new(&Quota::fixed_window(500, MINUTE)).expect("a valid quota");
//! let mut state = Default::default();
//! let now = 1_700_000_040_000_000;
//! small.take(&mut state, now, 100);
//! let state = large.convert(&small, &state, now);
//! assert_eq!(large.assess(&state, now, 0).remaining, 400);
//! ```

use crate::{
    algorithm::assessment::{Algorithm, Assessment, DenyBound, Retry, Taken},
    algorithm_kind::AlgorithmKind,
    quota::Quota,
    time::{Tick, micros},
};

/// A fixed window, made ready. See the [module documentation](self).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FixedWindow {
    limit: u64,
    /// The most units that may be owed: what is used beyond the limit begins the next windows.
    debt: u64,
    windows: Windows,
}

/// Where windows begin and end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Windows {
    /// Each of so many µs since the epoch; a window is known by its number.
    Every(u64),
    /// A window is known by its end.
    #[cfg(feature = "calendar")]
    Calendar(&'static crate::calendar::CalendarWindows),
}

impl Windows {
    /// What the window of `now` is known by.
    fn at(&self, now: Tick) -> u64 {
        match self {
            Self::Every(period) => now / period,
            #[cfg(feature = "calendar")]
            Self::Calendar(windows) => windows.end(now),
        }
    }

    fn end(&self, window: u64) -> Tick {
        match self {
            Self::Every(period) => window.saturating_add(1).saturating_mul(*period),
            #[cfg(feature = "calendar")]
            Self::Calendar(_) => window,
        }
    }

    /// The `n`th window after this one.
    fn after(&self, window: u64, n: u64) -> u64 {
        match self {
            Self::Every(_) => window.saturating_add(n),
            #[cfg(feature = "calendar")]
            Self::Calendar(windows) => windows.after(window, n),
        }
    }

    /// The how manieth window after `window` a later one is; `most` if it is beyond that.
    fn between(&self, window: u64, later: u64, most: u64) -> u64 {
        match self {
            Self::Every(_) => (later - window).min(most),
            #[cfg(feature = "calendar")]
            Self::Calendar(windows) => {
                let (mut end, mut n) = (window, 0);
                while end < later && n < most {
                    (end, n) = (windows.end(end), n + 1);
                }
                n
            }
        }
    }
}

/// 16 bytes: which window, and how many units were taken in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FixedWindowState {
    window: u64,
    used: u64,
}

impl FixedWindowState {
    /// The units that were taken in its window, which may be over.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.used
    }
}

impl FixedWindow {
    /// The state's window if it is not over before this one; a state of the future counts as well, so that time that goes back never
    /// refills.
    fn current(&self, state: &FixedWindowState, window: u64) -> FixedWindowState {
        if state.window >= window && state.used > 0 {
            *state
        } else {
            let used = self.owed_in(state, window);
            FixedWindowState { window, used }
        }
    }

    /// What begins `window` as used units, which is after that of the state.
    fn owed_in(&self, state: &FixedWindowState, window: u64) -> u64 {
        if self.debt == 0 || state.used <= self.limit {
            return 0;
        }
        let turns = state.used.div_ceil(self.limit);
        let turns = self.windows.between(state.window, window, turns);
        state.used.saturating_sub(turns.saturating_mul(self.limit))
    }

    /// When units have come back of a state with `used` units: all, or as many as lie `beyond` what may be used then.
    fn back_at(&self, window: u64, beyond: u64) -> Tick {
        if self.debt == 0 || beyond <= self.limit {
            return self.windows.end(window);
        }
        let turns = (beyond - 1) / self.limit;
        self.windows.end(self.windows.after(window, turns))
    }

    /// Where a repair leaves a window: no further ahead than the next one.
    ///
    /// Not in the window of `now`: a clock that goes back by a millisecond over a boundary would free the units of the
    /// window it had just left, a millisecond later and in the same window.
    fn repaired(&self, window: u64, now: Tick) -> u64 {
        let present = self.windows.at(now);
        window.min(self.windows.at(self.windows.end(present)))
    }

    fn denial(&self, state: FixedWindowState, now: Tick, cost: u64) -> Assessment {
        // A window far ahead is repaired by this denial.
        let (window, used) = (self.repaired(state.window, now), state.used);
        let back_after = |beyond| self.back_at(window, beyond).saturating_sub(now);
        let reset_after = back_after(used);
        Assessment {
            fits: false,
            remaining: self.limit.saturating_sub(used),
            reset_after: if used > 0 { reset_after } else { 0 },
            retry: if cost > self.limit {
                Retry::Never
            } else {
                Retry::after_micros(back_after((used + cost).saturating_sub(self.limit)))
            },
        }
    }

    /// Decides about a state of the window of `now`, or of a later one.
    fn assess_current(&self, state: FixedWindowState, now: Tick, cost: u64) -> Assessment {
        let left = self.limit.saturating_sub(state.used);
        if cost > left {
            return self.denial(state, now, cost);
        }
        let remaining = left - cost;
        Assessment {
            fits: true,
            remaining,
            reset_after: match state.used + cost {
                0 => 0,
                used => self.back_at(state.window, used).saturating_sub(now),
            },
            retry: if remaining == 0 && cost == 0 {
                self.denial(state, now, 1).retry
            } else if remaining < cost {
                Retry::after_micros(self.windows.end(state.window).saturating_sub(now))
            } else {
                Retry::Now
            },
        }
    }
}

impl Algorithm for FixedWindow {
    type State = FixedWindowState;

    fn new(quota: &Quota) -> Option<Self> {
        let quota = quota.valid_for(AlgorithmKind::FixedWindow)?;
        Some(Self {
            limit: quota.limit(),
            debt: 0,
            windows: match quota.calendar_of() {
                #[cfg(feature = "calendar")]
                Some(calendar) => Windows::Calendar(calendar.windows()),
                #[cfg(not(feature = "calendar"))]
                Some(never) => match never {},
                None => Windows::Every(micros(quota.period())),
            },
        })
    }

    fn with_debt(self, at_most: u64) -> Self {
        Self {
            debt: at_most,
            ..self
        }
    }

    fn charge(&self, state: &mut FixedWindowState, now: Tick, units: u64) -> u64 {
        let current = self.current(state, self.windows.at(now));
        let taken = units.min((self.limit + self.debt).saturating_sub(current.used));
        self.take(state, now, taken);
        units - taken
    }

    fn debt(&self, state: &FixedWindowState, now: Tick) -> u64 {
        self.current(state, self.windows.at(now))
            .used
            .saturating_sub(self.limit)
    }

    fn assess(&self, state: &FixedWindowState, now: Tick, cost: u64) -> Assessment {
        self.assess_current(self.current(state, self.windows.at(now)), now, cost)
    }

    fn fit(
        &self,
        state: &FixedWindowState,
        now: Tick,
        cost: u64,
    ) -> Option<(FixedWindowState, Assessment)> {
        let window = self.windows.at(now);
        let mut after = self.current(state, window);
        let answer = self.assess_current(after, now, cost);
        after.used = after.used.saturating_add(cost);
        (answer.fits && cost > 0 && state.window <= window).then_some((after, answer))
    }

    fn take(&self, state: &mut FixedWindowState, now: Tick, cost: u64) {
        if cost > 0 {
            *state = self.current(state, self.windows.at(now));
            state.used = state.used.saturating_add(cost);
        }
    }

    fn repair(&self, state: &mut FixedWindowState, now: Tick) {
        state.window = self.repaired(state.window, now);
    }

    fn refund(&self, state: &mut FixedWindowState, _now: Tick, taken: Taken, cost: u64) {
        // Units of a window that is over are not given back in a later one.
        if taken.fresh_at == self.windows.end(state.window) {
            state.used = state.used.saturating_sub(cost);
        }
    }

    fn refund_converted(
        &self,
        before: &Self,
        state: &mut FixedWindowState,
        now: Tick,
        taken: Taken,
        cost: u64,
    ) {
        if before.windows == self.windows {
            self.refund(state, now, taken, cost);
        } else if now < taken.fresh_at && self.windows.at(taken.at) == state.window {
            // Their window is not over, so they were carried over; and not into one before this.
            state.used = state.used.saturating_sub(cost);
        }
    }

    fn fresh_at(&self, state: &FixedWindowState) -> Tick {
        if state.used == 0 {
            0
        } else {
            self.back_at(state.window, state.used)
        }
    }

    fn is_ahead(&self, state: &FixedWindowState, now: Tick) -> bool {
        state.window > self.windows.at(now)
    }

    fn convert(&self, before: &Self, state: &FixedWindowState, now: Tick) -> FixedWindowState {
        if before.windows == self.windows {
            // Beyond either limit it is what is owed by the other quota, and not what is used of a window of this one.
            return match state.used > before.limit.min(self.limit) {
                true => before.current(state, before.windows.at(now)),
                false => *state,
            };
        }
        FixedWindowState {
            window: self.windows.at(now),
            used: before.current(state, before.windows.at(now)).used,
        }
    }

    fn defers_to(&self, writer: &Self, _state: &FixedWindowState, _now: Tick) -> bool {
        writer.limit >= self.limit
    }

    fn deny_bound(&self, state: &FixedWindowState, _now: Tick) -> Option<DenyBound> {
        Some(DenyBound(state.window, state.used))
    }

    fn deny_by(&self, bound: DenyBound, now: Tick, cost: u64) -> Option<Assessment> {
        let (window, used) = (bound.0, bound.1);
        // A window that is over, or of the future, is for the state to say.
        if window != self.windows.at(now) || cost <= self.limit.saturating_sub(used) {
            return None;
        }
        Some(self.denial(FixedWindowState { window, used }, now, cost))
    }
}
