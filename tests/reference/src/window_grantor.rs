//! The store's side of leases, for windows that count.

use tollgate_core::{
    Tick,
    algorithm::{Algorithm, Assessment, Taken},
};
use tollgate_prefilter::{Grant, LeaseQuery, LeaseTerms, ReturnedLease};

use crate::lease_size::LeaseSize;

/// Grants leases of a fixed window, or of a sliding window of two counters.
///
/// A lease is counted in the window in which it is granted, and ends with it. So its units count where they are spent, and nothing
/// has to be held back. The reserve bounds how many units may sit unused in other processes while one denies a request.
///
/// A lease may come back with more units than it was granted with: those of earlier leases of the window, which had been spent on
/// requests that were then not let through. One of the window before comes back as long as it weighs.
///
/// # Accuracy
///
/// No window counts more than its limit, whatever is lost and whichever process crashes: what is granted is counted until it has come
/// back. While the store's clock is set back behind a window that counts, nothing is granted. When it goes forward, leases that
/// are out are spent in a window that does not count them, at most the reserve.
#[derive(Clone, Copy, Debug)]
pub struct WindowGrantor<A> {
    pub(crate) quota: A,
    terms: LeaseTerms,
    /// How large leases are.
    pub size: LeaseSize,
    window: Tick,
}

/// What the store keeps of a key. The default is fresh.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowState<S> {
    /// The counts. What is granted is counted.
    pub counts: S,
    /// The number of the window in which units are out.
    pub window: u64,
    /// The units that are out in that window.
    pub granted: u64,
}

impl<A: Algorithm> WindowGrantor<A> {
    /// A grantor of a quota that counts in windows. `None` if the terms are those of a bucket.
    #[must_use]
    pub fn new(quota: A, terms: &LeaseTerms) -> Option<Self> {
        Some(Self {
            quota,
            window: terms.window.filter(|window| *window > 0)?,
            terms: *terms,
            size: LeaseSize::default(),
        })
    }

    /// Decides about `cost` units, takes them if they fit, and grants.
    pub fn acquire(
        &self,
        state: &mut WindowState<A::State>,
        now: Tick,
        cost: u64,
        query: &LeaseQuery,
    ) -> (Assessment, Option<Grant>) {
        let window = self.number(now);
        if state.window != window {
            (state.window, state.granted) = (window, 0);
        }
        if let Some(returned) = query.returned {
            self.take_back(state, now, returned);
        }
        let answer = self.quota.acquire(&mut state.counts, now, cost);
        if !answer.fits {
            self.quota.repair(&mut state.counts, now);
            return (answer, None);
        }
        let room = self.terms.reserve.saturating_sub(state.granted);
        let units = self.size.units(query.tracked, answer.remaining, room);
        // A state of the future counts in its own window: what is granted would be spent before.
        if units == 0 || self.quota.is_ahead(&state.counts, now) {
            return (answer, None);
        }
        self.quota.take(&mut state.counts, now, units);
        state.granted += units;
        let after = self.quota.assess(&state.counts, now, 0);
        let (remaining, reset_after) = (after.remaining, after.reset_after);
        let answer = Assessment::new(answer.fits, remaining, reset_after, answer.retry);
        let generation = window;
        (answer, Some(Grant::Tracked { units, generation }))
    }

    /// Forgets what was used, and not what is granted: that is counted as before, in its window.
    pub fn reset(&self, state: &mut WindowState<A::State>, now: Tick) {
        let starts = state.window.saturating_mul(self.window);
        let is_over = state.window < self.number(now);
        if is_over || state.granted == 0 {
            *state = WindowState::default();
            return;
        }
        state.counts = A::State::default();
        // While the clock is set back, the window is one to come.
        self.quota
            .take(&mut state.counts, now.max(starts), state.granted);
    }

    /// A lease that comes back: its units are not counted any more, as far as their window counts.
    ///
    /// It may have more units left than it was granted with: those of leases before it that came back later. Units of the window before
    /// weigh in a sliding window until this one is over.
    fn take_back(&self, state: &mut WindowState<A::State>, now: Tick, returned: ReturnedLease) {
        // While the clock is set back it is not known what was counted where.
        if self.quota.is_ahead(&state.counts, now) {
            return;
        }
        if returned.generation == state.window {
            // One that is not known was counted in a state that is gone.
            let Some(granted) = state.granted.checked_sub(returned.size) else {
                return;
            };
            state.granted = granted;
        } else if returned.generation.checked_add(1) != Some(state.window) {
            return;
        }
        if returned.left > 0 {
            let taken = Taken::new(now, self.weighs_until(returned.generation));
            self.quota
                .refund(&mut state.counts, now, taken, returned.left);
        }
    }

    /// The number of the window of a time: of a calendar, whose windows differ in length, its last microsecond.
    fn number(&self, now: Tick) -> u64 {
        match self.window {
            1 => {
                let mut state = A::State::default();
                self.quota.take(&mut state, now, 1);
                self.quota.fresh_at(&state) - 1
            }
            window => now / window,
        }
    }

    /// Until when units weigh that are counted in the window of this number.
    fn weighs_until(&self, window: u64) -> Tick {
        let mut state = A::State::default();
        self.quota
            .take(&mut state, window.saturating_mul(self.window), 1);
        self.quota.fresh_at(&state)
    }
}
