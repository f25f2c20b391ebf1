//! Sliding window of two weighted counters: an estimate, at the price of a fixed window.
//!
//! # Promise
//!
//! Two aligned windows are counted. The one before weighs as much of itself as still overlaps the window that slides. At
//! each admission
//!
//! ```text
//! current + ⌈previous · overlap / W⌉ ≤ limit
//! ```
//!
//! holds, the new units included. The overlap shrinks evenly from `W`, at the start of an aligned window, to 0 at its end.
//! The formula is the known one of proxies and content networks; it is exact if the units of the previous window were
//! spread evenly.
//!
//! # Worst case
//!
//! If they were not, nearly `2 · limit` in one window: all at the end of an aligned window, and then one by one as they
//! are weighed less, although they are younger than the estimate takes them for. Measured against an exact log, 100 in
//! 60 s: 117 in the worst 60 s of random traffic, 167 with bursts, 199 with an adversary at the boundary.
//!
//! # Rounding
//!
//! Against the client. Where `limit · W` is 2⁵³ unit·µs or more (some 104 000 a day), the overlap is counted in steps of
//! several µs, so that each product stays exact for stores that count in doubles. It makes the estimate larger by less
//! than one unit up to a limit of 2²⁶ (67 108 864), by less than two above.
//! [`Quota::validate`](crate::Quota::validate) refuses what would cost more.
//!
//! # State
//!
//! The number of the window and two counts: 16 bytes; 43 to 64 bytes a key in the memory store.
//!
//! # When to take it, and when not
//!
//! Take it where a limit is said as "n in a window" and the hard boundary of a [`fixed_window`](super::fixed_window) is
//! unwelcome. Not where the number is a promise: take [`sliding_buckets`](super::sliding_buckets), or
//! [`sliding_log`](super::sliding_log) for small limits. Not where an even pace is wanted: take [`gcra`](super::gcra). A
//! client that used all of a window waits until the next one has begun, and may need to wait up to two windows for
//! the whole limit.
//!
//! # Examples
//!
//! ```
//! use tollgate_core::{MINUTE, Quota, Retry, algorithm::{Algorithm, SlidingWindow}};
//!
//! let quota = SlidingWindow::new(&Quota::sliding_window(100, MINUTE)).expect("a valid quota");
//! let mut state = Default::default();
//! // The start of a minute.
//! let now = 1_700_000_040_000_000;
//! quota.take(&mut state, now, 100);
//! // A quarter into the next minute, three quarters of the hundred still count.
//! assert_eq!(quota.assess(&state, now + 75_000_000, 0).remaining, 25);
//! // The first of them has gone a hundredth into it.
//! assert_eq!(quota.assess(&state, now, 1).retry, Retry::after_micros(60_600_000));
//! ```

use crate::{
    algorithm::assessment::{Algorithm, Assessment, DenyBound, Retry, Taken},
    algorithm_kind::AlgorithmKind,
    quota::Quota,
    time::{Tick, micros},
};

/// A sliding window of two counters, made ready. See the [module documentation](self).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlidingWindow {
    limit: u64,
    period: u64,
    /// The overlap with the previous window is counted in steps of this many µs, rounded up. It is 1 unless
    /// `limit · period` would leave 53 bits.
    resolution: u64,
    /// Grains in a window.
    steps: u64,
    /// The most units that may be owed: what is used beyond the limit begins the next windows.
    debt: u64,
}

/// 16 bytes: which window, the units taken in it, and in the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlidingWindowState {
    window: u64,
    previous: u32,
    current: u32,
}

impl SlidingWindowState {
    /// The units that were taken in its window, and in the one before; both may be over.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.previous as u64 + self.current as u64
    }
}

/// A state seen at an instant: its counters, when its window ends, and what still overlaps of the one before.
#[derive(Clone, Copy)]
struct View {
    window: u64,
    previous: u64,
    current: u64,
    /// The tick that stands for `now`: the start of the state's window where that lies in the future.
    at: Tick,
}

impl View {
    /// The state with so many units in its window.
    fn with(&self, current: u64) -> SlidingWindowState {
        SlidingWindowState {
            window: self.window,
            // Also with what is owed, validation keeps both within 32 bits.
            previous: self.previous as u32,
            current: current as u32,
        }
    }
}

impl SlidingWindow {
    /// The microseconds in which the overlap with the previous window is counted: 1, unless `limit · W` leaves 53 bits.
    #[must_use]
    pub const fn resolution(&self) -> u64 {
        self.resolution
    }

    fn view(&self, state: &SlidingWindowState, now: Tick) -> View {
        let window = now / self.period;
        let (previous, current) = (u64::from(state.previous), u64::from(state.current));
        if state.window > window && previous + current > 0 {
            return View {
                window: state.window,
                previous,
                current,
                at: state.window.saturating_mul(self.period),
            };
        }
        let (previous, current) = match window.checked_sub(state.window) {
            Some(0) => (previous, current),
            Some(turns) => self.turned(current, turns),
            // A state of the future without units is a fresh one.
            None => (0, 0),
        };
        View {
            window,
            previous,
            current,
            at: now,
        }
    }

    /// The units of the window before and of that window, some windows after one with `current` units.
    fn turned(&self, current: u64, turns: u64) -> (u64, u64) {
        if self.debt == 0 || current <= self.limit {
            return (if turns == 1 { current } else { 0 }, 0);
        }
        let owed = current.saturating_sub((turns - 1).saturating_mul(self.limit));
        (owed.min(self.limit), owed.saturating_sub(self.limit))
    }

    /// After how many windows there is room for units that lie `beyond` the limit by so many.
    fn turns(&self, beyond: u64) -> u64 {
        match self.debt {
            0 => 1,
            _ => beyond.div_ceil(self.limit),
        }
    }

    fn end(&self, window: u64) -> Tick {
        window.saturating_add(1).saturating_mul(self.period)
    }

    /// Where a repair leaves a window: no further ahead than the next one, at whose start both counters weigh what they
    /// weigh now. In the window of `now` the one before would weigh less.
    fn repaired(&self, window: u64, now: Tick) -> u64 {
        window.min((now / self.period).saturating_add(1))
    }

    /// How much of the previous window still overlaps the sliding one, in steps, rounded up.
    fn overlap(&self, view: &View) -> u64 {
        (self.end(view.window) - view.at)
            .div_ceil(self.resolution)
            .min(self.steps)
    }

    /// Units that are left: `limit − current − ⌈previous · overlap / window⌉`.
    fn left(&self, view: &View) -> u64 {
        self.limit
            .saturating_sub(view.current)
            .saturating_sub(self.weighted(view))
    }

    /// `⌈previous · overlap / window⌉`.
    fn weighted(&self, view: &View) -> u64 {
        let overlap = self.overlap(view);
        match view.previous.checked_mul(overlap) {
            Some(product) => product.div_ceil(self.steps),
            // Counted under a far larger limit that was lowered since; the quotient is at most `previous`.
            None => {
                let product = u128::from(view.previous) * u128::from(overlap);
                product.div_ceil(u128::from(self.steps)) as u64
            }
        }
    }

    /// The first tick at which `previous` units of the window before `end − period` leave room for `room` units.
    fn room_at(&self, previous: u64, room: u64, end: Tick) -> Tick {
        // `previous · overlap ≤ room · steps`, and the overlap is `⌈(end − t) / resolution⌉`.
        let overlap = (room * self.steps) / previous.max(1);
        if overlap >= self.steps {
            end - self.period
        } else {
            end - overlap * self.resolution
        }
    }

    fn retry(&self, view: &View, now: Tick, cost: u64) -> Retry {
        if cost > self.limit {
            return Retry::Never;
        }
        let end = self.end(view.window);
        let at = match self.limit.checked_sub(view.current + cost) {
            // Room comes while the previous window slides out.
            Some(room) => self.room_at(view.previous, room, end),
            // Room comes only when this window has become the previous one and slides out.
            None => {
                let turns = self.turns(view.current + cost - self.limit);
                let (previous, current) = self.turned(view.current, turns);
                self.room_at(
                    previous,
                    self.limit - cost - current,
                    end.saturating_add(turns.saturating_mul(self.period)),
                )
            }
        };
        Retry::after_micros(at.saturating_sub(now))
    }

    fn fresh_at_of(&self, window: u64, previous: u64, current: u64) -> Tick {
        if current > 0 {
            self.end(window.saturating_add(self.turns(current)))
        } else if previous > 0 {
            self.end(window)
        } else {
            0
        }
    }
}

impl Algorithm for SlidingWindow {
    type State = SlidingWindowState;

    fn new(quota: &Quota) -> Option<Self> {
        let quota = quota.valid_for(AlgorithmKind::SlidingWindow)?;
        let (limit, period) = (quota.limit(), micros(quota.period()));
        let product = u128::from(limit) * u128::from(period);
        // At most 10^8 by validation, where the product does not fit.
        let resolution = u64::try_from(product >> 53)
            .unwrap_or(u64::MAX)
            .saturating_add(1);
        Some(Self {
            limit,
            period,
            resolution,
            steps: (period / resolution).max(1),
            debt: 0,
        })
    }

    fn with_debt(self, at_most: u64) -> Self {
        Self {
            debt: at_most,
            ..self
        }
    }

    fn charge(&self, state: &mut SlidingWindowState, now: Tick, units: u64) -> u64 {
        let view = self.view(state, now);
        let used = view.current + self.weighted(&view);
        let taken = units.min((self.limit + self.debt).saturating_sub(used));
        if taken > 0 {
            *state = view.with(view.current + taken);
        }
        units - taken
    }

    fn debt(&self, state: &SlidingWindowState, now: Tick) -> u64 {
        let view = self.view(state, now);
        (view.current + self.weighted(&view)).saturating_sub(self.limit)
    }

    fn assess(&self, state: &SlidingWindowState, now: Tick, cost: u64) -> Assessment {
        let view = self.view(state, now);
        let left = self.left(&view);
        if cost <= left {
            let remaining = left - cost;
            let after = View {
                current: view.current + cost,
                ..view
            };
            return Assessment {
                fits: true,
                remaining,
                reset_after: self
                    .fresh_at_of(after.window, after.previous, after.current)
                    .saturating_sub(now),
                retry: if remaining == 0 && cost == 0 {
                    self.assess(state, now, 1).retry
                } else if remaining < cost {
                    self.retry(&after, now, cost)
                } else {
                    Retry::Now
                },
            };
        }
        // A window far ahead is repaired by this denial.
        let window = self.repaired(view.window, now);
        let view = View {
            window,
            at: now.max(window.saturating_mul(self.period)),
            ..view
        };
        Assessment {
            fits: false,
            remaining: self.left(&view),
            reset_after: self
                .fresh_at_of(window, view.previous, view.current)
                .saturating_sub(now),
            retry: self.retry(&view, now, cost),
        }
    }

    fn take(&self, state: &mut SlidingWindowState, now: Tick, cost: u64) {
        if cost > 0 {
            let view = self.view(state, now);
            *state = view.with((view.current + cost).min(self.limit));
        }
    }

    fn repair(&self, state: &mut SlidingWindowState, now: Tick) {
        state.window = self.repaired(state.window, now);
    }

    fn refund(&self, state: &mut SlidingWindowState, _now: Tick, taken: Taken, cost: u64) {
        let cost = u32::try_from(cost).unwrap_or(u32::MAX);
        // The units were taken in the window that ends one period before they are forgotten.
        let end = self.end(state.window);
        if taken.fresh_at == end.saturating_add(self.period) {
            state.current = state.current.saturating_sub(cost);
        } else if taken.fresh_at == end {
            state.previous = state.previous.saturating_sub(cost);
        }
    }

    fn refund_converted(
        &self,
        before: &Self,
        state: &mut SlidingWindowState,
        now: Tick,
        taken: Taken,
        cost: u64,
    ) {
        if before.period == self.period {
            self.refund(state, now, taken, cost);
            return;
        }
        // What they weigh under the other quota, where they weigh less and less once their window is the one before.
        let weighs_for = taken.fresh_at.saturating_sub(now).min(before.period);
        let units =
            u32::try_from(u128::from(cost) * u128::from(weighs_for) / u128::from(before.period))
                .unwrap_or(u32::MAX);
        // They were carried over into the window in which they were taken, or a later one.
        let first = taken.at / self.period;
        if first == state.window {
            state.current = state.current.saturating_sub(units);
        } else if first.checked_add(1) == Some(state.window) {
            let rest = units.saturating_sub(state.previous);
            state.previous = state.previous.saturating_sub(units);
            state.current = state.current.saturating_sub(rest);
        }
    }

    fn fresh_at(&self, state: &SlidingWindowState) -> Tick {
        self.fresh_at_of(
            state.window,
            u64::from(state.previous),
            u64::from(state.current),
        )
    }

    fn is_ahead(&self, state: &SlidingWindowState, now: Tick) -> bool {
        state.window > now / self.period
    }

    fn convert(&self, before: &Self, state: &SlidingWindowState, now: Tick) -> SlidingWindowState {
        let view = before.view(state, now);
        if before.period == self.period {
            return view.with(view.current);
        }
        // Another window: what counts now counts in the new one as if it had just been taken. Where time has gone back the window before
        // weighs more, but what is beyond the limit is only what is owed.
        let most = match view.current > before.limit {
            true => u64::from(u32::MAX),
            false => before.limit,
        };
        SlidingWindowState {
            window: now / self.period,
            previous: 0,
            current: (view.current + before.weighted(&view)).min(most) as u32,
        }
    }

    fn defers_to(&self, writer: &Self, _state: &SlidingWindowState, _now: Tick) -> bool {
        writer.limit >= self.limit
    }

    fn deny_bound(&self, state: &SlidingWindowState, _now: Tick) -> Option<DenyBound> {
        let counters = u64::from(state.previous) << 32 | u64::from(state.current);
        Some(DenyBound(state.window, counters))
    }

    fn deny_by(&self, bound: DenyBound, now: Tick, cost: u64) -> Option<Assessment> {
        let state = SlidingWindowState {
            window: bound.0,
            previous: (bound.1 >> 32) as u32,
            current: bound.1 as u32,
        };
        // A state of the future has to be repaired by the denial.
        if state.window > now / self.period {
            return None;
        }
        let answer = self.assess(&state, now, cost);
        (!answer.fits).then_some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::DAY;

    #[test]
    fn a_count_of_a_far_larger_limit_is_weighed_beyond_64_bits() {
        let window = |limit| Quota::sliding_window(limit, 10 * DAY);
        let [large, small] =
            [60_000_000, 10].map(|limit| SlidingWindow::new(&window(limit)).expect("valid"));
        let (period, start) = (864_000_000_000, 1_700_352_000_000_000);
        let mut state = SlidingWindowState::default();
        large.take(&mut state, start, 60_000_000);
        let state = small.convert(&large, &state, start + period);
        // In 864 000 million steps: all of them, half of them, and one.
        for (after, remaining) in [(0, 0), (period / 2, 0), (period - 1, 9)] {
            let answer = small.assess(&state, start + period + after, 0);
            assert_eq!(answer.remaining, remaining, "after {after} µs");
        }
    }
}
