//! Windows that are counted: the state machine of [`fixed_window`](super::fixed_window) and [`sliding_window`](super::sliding_window),
//! which differ in whether the window before still weighs.

use crate::{
    algorithm::assessment::{Algorithm, Assessment, DenyBound, Retry, Taken},
    algorithm_kind::AlgorithmKind,
    quota::Quota,
    time::{Tick, micros},
};

#[cfg(feature = "calendar")]
use crate::calendar::CalendarWindows;

/// A window made ready: fixed, or sliding by the weight of the one before. Which of them is a type, so that a fixed window weighs
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowCounter<const SLIDES: bool> {
    limit: u64,
    /// Windows without a calendar are known by their numbers since the epoch.
    period: u64,
    /// Windows of a calendar are known by their ends. Those that slide have none.
    #[cfg(feature = "calendar")]
    calendar: Option<&'static CalendarWindows>,
    /// Where it slides, the overlap with the previous window is counted in steps of this many µs, rounded up. It is 1 unless
    /// `limit · period` would leave 53 bits.
    resolution: u64,
    /// Steps in a window.
    steps: u64,
    /// The most units that may be owed: what is used beyond the limit begins the next windows.
    debt: u64,
}

/// 16 bytes: which window, and the units taken in it; of one that slides also those of the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowState<const SLIDES: bool> {
    window: u64,
    /// Of a window that slides, 32 bits each: those of the one before are above.
    units: u64,
}

impl<const SLIDES: bool> WindowState<SLIDES> {
    /// The units that were taken in its window, and those in the one before that its algorithm counts. They may be over.
    #[must_use]
    pub const fn used(&self) -> u64 {
        let (previous, current) = self.counters();
        previous + current
    }

    /// The units of the window before, and of its own.
    const fn counters(&self) -> (u64, u64) {
        match SLIDES {
            true => (self.units >> 32, self.units as u32 as u64),
            false => (0, self.units),
        }
    }

    fn new(window: u64, previous: u64, current: u64) -> Self {
        let units = match SLIDES {
            // Also with what is owed, validation keeps both within 32 bits.
            true => previous << 32 | u64::from(current as u32),
            false => current,
        };
        Self { window, units }
    }

    /// With `cost` units more, which fit.
    fn plus(self, cost: u64) -> Self {
        let units = self.units + cost;
        Self { units, ..self }
    }
}

impl WindowCounter<true> {
    /// The microseconds in which the overlap with the previous window is counted: 1, unless `limit · W` leaves 53 bits.
    #[must_use]
    pub const fn resolution(&self) -> u64 {
        self.resolution
    }
}

impl<const SLIDES: bool> WindowCounter<SLIDES> {
    const KIND: AlgorithmKind = match SLIDES {
        true => AlgorithmKind::SlidingWindow,
        false => AlgorithmKind::FixedWindow,
    };

    #[cfg(feature = "calendar")]
    fn calendar(&self) -> Option<&'static CalendarWindows> {
        self.calendar.filter(|_| !SLIDES)
    }

    /// What the window of `now` is known by.
    fn at(&self, now: Tick) -> u64 {
        #[cfg(feature = "calendar")]
        if let Some(calendar) = self.calendar() {
            return calendar.end(now);
        }
        now / self.period
    }

    fn end(&self, window: u64) -> Tick {
        #[cfg(feature = "calendar")]
        if self.calendar().is_some() {
            return window;
        }
        window.saturating_add(1).saturating_mul(self.period)
    }

    /// The `n`th window after this one.
    fn after(&self, window: u64, n: u64) -> u64 {
        #[cfg(feature = "calendar")]
        if let Some(calendar) = self.calendar() {
            return calendar.after(window, n);
        }
        window.saturating_add(n)
    }

    fn end_after(&self, window: u64, n: u64) -> Tick {
        match n {
            0 => self.end(window),
            _ => self.end(self.after(window, n)),
        }
    }

    /// The end of the last window in which units of this one weigh that are gone after so many turns: that one slides out later.
    fn weigh_until(&self, window: u64, turns: u64) -> Tick {
        self.end_after(window, if SLIDES { turns } else { turns - 1 })
    }

    /// The how manieth window after `window` a later one is; `most` if it is beyond that.
    fn between(&self, window: u64, later: u64, most: u64) -> u64 {
        #[cfg(feature = "calendar")]
        if let Some(calendar) = self.calendar() {
            let (mut end, mut n) = (window, 0);
            while end < later && n < most {
                (end, n) = (calendar.end(end), n + 1);
            }
            return n;
        }
        (later - window).min(most)
    }

    fn has_windows_of(&self, other: &Self) -> bool {
        #[cfg(feature = "calendar")]
        if self.calendar != other.calendar {
            return false;
        }
        self.period == other.period
    }

    fn current(&self, state: &WindowState<SLIDES>, now: Tick) -> WindowState<SLIDES> {
        self.current_in(self.at(now), state)
    }

    /// The state as of a window, if its own is over by then; a state of the future counts as it is, so that time that goes back never
    /// refills.
    fn current_in(&self, window: u64, state: &WindowState<SLIDES>) -> WindowState<SLIDES> {
        if state.window >= window && state.units > 0 {
            return *state;
        }
        let (_, current) = state.counters();
        let turns = match self.owes(current) {
            // After one more nothing weighs.
            true => self.between(state.window, window, current.div_ceil(self.limit) + 1),
            // A state of the future without units is a fresh one.
            false => window.saturating_sub(state.window),
        };
        let (previous, current) = self.turned(current, turns);
        WindowState::new(window, previous, current)
    }

    fn owes(&self, current: u64) -> bool {
        self.debt > 0 && current > self.limit
    }

    /// The units of the window before and of that window, some windows after one with `current` units.
    fn turned(&self, current: u64, turns: u64) -> (u64, u64) {
        let (previous, owed) = if self.owes(current) {
            let owed = current.saturating_sub((turns - 1).saturating_mul(self.limit));
            (owed.min(self.limit), owed.saturating_sub(self.limit))
        } else {
            (if turns == 1 { current } else { 0 }, 0)
        };
        (if SLIDES { previous } else { 0 }, owed)
    }

    /// After how many windows there is room for units that lie `beyond` the limit by so many.
    fn turns(&self, beyond: u64) -> u64 {
        match self.debt {
            0 => 1,
            _ => beyond.div_ceil(self.limit).max(1),
        }
    }

    /// Units that count at `now`: `current + ⌈previous · overlap / window⌉`. The overlap is what of the previous window the sliding one
    /// still has, in steps, rounded up.
    fn counting(&self, state: &WindowState<SLIDES>, now: Tick) -> u64 {
        let (previous, current) = state.counters();
        if !SLIDES {
            return current;
        }
        let end = self.end(state.window);
        // Where the state's window lies in the future, its start stands for `now`.
        let overlap = (end - now.max(end - self.period))
            .div_ceil(self.resolution)
            .min(self.steps);
        let weighted = match previous.checked_mul(overlap) {
            Some(product) => product.div_ceil(self.steps),
            // Counted under a far larger limit that was lowered since; the quotient is at most `previous`.
            None => {
                let product = u128::from(previous) * u128::from(overlap);
                product.div_ceil(u128::from(self.steps)) as u64
            }
        };
        current + weighted
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

    /// When `cost` units fit, which do not now.
    fn retry(&self, state: &WindowState<SLIDES>, now: Tick, cost: u64) -> Retry {
        if cost > self.limit {
            return Retry::Never;
        }
        let (window, (previous, current)) = (state.window, state.counters());
        let turns = self.turns((current + cost).saturating_sub(self.limit));
        let at = match self.limit.checked_sub(current + cost) {
            // All come back at once.
            _ if !SLIDES => self.weigh_until(window, turns),
            // Room comes while the previous window slides out.
            Some(room) => self.room_at(previous, room, self.end(window)),
            // Room comes only when this window has become the previous one and slides out.
            None => {
                let (previous, current) = self.turned(current, turns);
                let room = self.limit - cost - current;
                self.room_at(previous, room, self.end_after(window, turns))
            }
        };
        Retry::after_micros(at.saturating_sub(now))
    }

    /// Decides about a state of the window of `now`, or of a later one.
    fn answer(&self, state: WindowState<SLIDES>, now: Tick, cost: u64) -> Assessment {
        let left = self.limit.saturating_sub(self.counting(&state, now));
        if cost > left {
            return self.denial(state, now, cost);
        }
        let (remaining, after) = (left - cost, state.plus(cost));
        Assessment {
            fits: true,
            remaining,
            reset_after: self.fresh_at(&after).saturating_sub(now),
            retry: if remaining == 0 && cost == 0 {
                self.denial(state, now, 1).retry
            } else if remaining < cost {
                self.retry(&after, now, cost)
            } else {
                Retry::Now
            },
        }
    }

    fn denial(&self, mut state: WindowState<SLIDES>, now: Tick, cost: u64) -> Assessment {
        // A window far ahead is repaired by this denial.
        self.repair(&mut state, now);
        Assessment {
            fits: false,
            remaining: self.limit.saturating_sub(self.counting(&state, now)),
            reset_after: self.fresh_at(&state).saturating_sub(now),
            retry: self.retry(&state, now, cost),
        }
    }
}

impl<const SLIDES: bool> Algorithm for WindowCounter<SLIDES> {
    type State = WindowState<SLIDES>;

    fn new(quota: &Quota) -> Option<Self> {
        let quota = quota.valid_for(Self::KIND)?;
        let (limit, period) = (quota.limit(), micros(quota.period()));
        let resolution = match SLIDES {
            // The product leaves 53 bits by at most 10^8, by validation.
            true => ((u128::from(limit) * u128::from(period)) >> 53) as u64 + 1,
            false => 1,
        };
        Some(Self {
            limit,
            period,
            #[cfg(feature = "calendar")]
            calendar: quota.calendar_of().map(crate::calendar::Calendar::windows),
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

    fn charge(&self, state: &mut WindowState<SLIDES>, now: Tick, units: u64) -> u64 {
        let current = self.current(state, now);
        let most = (self.limit + self.debt).saturating_sub(self.counting(&current, now));
        let taken = units.min(most);
        if taken > 0 {
            *state = current.plus(taken);
        }
        units - taken
    }

    fn debt(&self, state: &WindowState<SLIDES>, now: Tick) -> u64 {
        let counting = self.counting(&self.current(state, now), now);
        counting.saturating_sub(self.limit)
    }

    fn assess(&self, state: &WindowState<SLIDES>, now: Tick, cost: u64) -> Assessment {
        self.answer(self.current(state, now), now, cost)
    }

    fn fit(
        &self,
        state: &WindowState<SLIDES>,
        now: Tick,
        cost: u64,
    ) -> Option<(WindowState<SLIDES>, Assessment)> {
        let window = self.at(now);
        let current = self.current_in(window, state);
        let answer = self.answer(current, now, cost);
        (answer.fits && cost > 0 && state.window <= window).then(|| (current.plus(cost), answer))
    }

    fn take(&self, state: &mut WindowState<SLIDES>, now: Tick, cost: u64) {
        if cost > 0 {
            *state = self.current(state, now);
            let (previous, current) = state.counters();
            let after = current.saturating_add(cost);
            let used = if SLIDES { after.min(self.limit) } else { after };
            *state = WindowState::new(state.window, previous, used);
        }
    }

    /// No further ahead than the next window.
    ///
    /// Not in the window of `now`: a clock that goes back by a millisecond over a boundary would free the units of the
    /// window it had just left, a millisecond later and in the same window; and the one before would weigh less.
    fn repair(&self, state: &mut WindowState<SLIDES>, now: Tick) {
        state.window = state.window.min(self.after(self.at(now), 1));
    }

    fn refund(&self, state: &mut WindowState<SLIDES>, _now: Tick, taken: Taken, cost: u64) {
        // Units of a window are forgotten with it, or with the next one where it slides. Those of one that is over are not given
        // back in a later one.
        let (window, (previous, current)) = (state.window, state.counters());
        if taken.fresh_at == self.weigh_until(window, 1) {
            *state = WindowState::new(window, previous, current.saturating_sub(cost));
        } else if SLIDES && taken.fresh_at == self.end(window) {
            *state = WindowState::new(window, previous.saturating_sub(cost), current);
        }
    }

    fn refund_converted(
        &self,
        before: &Self,
        state: &mut WindowState<SLIDES>,
        now: Tick,
        taken: Taken,
        cost: u64,
    ) {
        if before.has_windows_of(self) {
            self.refund(state, now, taken, cost);
            return;
        }
        // What they weigh under the other quota: all until its window is over, and less and less where that is then the one before.
        let weighs_for = taken.fresh_at.saturating_sub(now).min(before.period);
        let units = match SLIDES {
            true => {
                let weight = u128::from(cost) * u128::from(weighs_for) / u128::from(before.period);
                u64::try_from(weight).unwrap_or(u64::MAX)
            }
            false if weighs_for > 0 => cost,
            false => 0,
        };
        // They were carried over into the window in which they were taken, or a later one.
        let (window, (previous, current)) = (state.window, state.counters());
        let first = self.at(taken.at);
        if first == window {
            *state = WindowState::new(window, previous, current.saturating_sub(units));
        } else if SLIDES && first.checked_add(1) == Some(window) {
            let rest = current.saturating_sub(units.saturating_sub(previous));
            *state = WindowState::new(window, previous.saturating_sub(units), rest);
        }
    }

    fn fresh_at(&self, state: &WindowState<SLIDES>) -> Tick {
        let (previous, current) = state.counters();
        if current > 0 {
            self.weigh_until(state.window, self.turns(current))
        } else if previous > 0 {
            self.end(state.window)
        } else {
            0
        }
    }

    fn is_ahead(&self, state: &WindowState<SLIDES>, now: Tick) -> bool {
        state.window > self.at(now)
    }

    fn convert(
        &self,
        before: &Self,
        state: &WindowState<SLIDES>,
        now: Tick,
    ) -> WindowState<SLIDES> {
        let carried = before.current(state, now);
        if before.has_windows_of(self) {
            // Beyond either limit it is what is owed by the other quota, and not what is used of a window of this one.
            return match SLIDES || state.units > before.limit.min(self.limit) {
                true => carried,
                false => *state,
            };
        }
        // Another window: what counts now counts in the new one as if it had just been taken. Where time has gone back the window before
        // weighs more, but what is beyond the limit is only what is owed.
        let most = match carried.counters().1 > before.limit {
            true if SLIDES => u64::from(u32::MAX),
            true => u64::MAX,
            false => before.limit,
        };
        let used = before.counting(&carried, now).min(most);
        WindowState::new(self.at(now), 0, used)
    }

    fn defers_to(&self, writer: &Self, state: &WindowState<SLIDES>, now: Tick) -> bool {
        // Beyond the limit of a rule with debt it would be owed.
        let holds = || self.debt == 0 || self.convert(writer, state, now).used() <= self.limit;
        writer.limit >= self.limit && !(writer.period > self.period && holds())
    }

    fn deny_bound(&self, state: &WindowState<SLIDES>, _now: Tick) -> Option<DenyBound> {
        Some(DenyBound(state.window, state.units))
    }

    fn deny_by(&self, bound: DenyBound, now: Tick, cost: u64) -> Option<Assessment> {
        let (window, units) = (bound.0, bound.1);
        // A state of the future has to be repaired by the denial.
        let present = self.at(now);
        if window > present {
            return None;
        }
        let state = self.current_in(present, &WindowState { window, units });
        let answer = self.answer(state, now, cost);
        (!answer.fits).then_some(answer)
    }
}
