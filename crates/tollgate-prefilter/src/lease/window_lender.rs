//! The store's side of leases, for windows that count.

use tollgate_core::{
    Tick,
    algorithm::{Algorithm, Assessment, Taken},
};

use crate::lease::{
    lot::{Ask, Closed, Lot},
    terms::LeaseTerms,
};

/// Lends units of a fixed window, or of a sliding window of two counters.
///
/// A lot is counted in the window in which it is lent, and ends with it. So its units count where they are spent, and nothing
/// has to be held back. The reserve bounds what may lie idle elsewhere while a request is refused.
#[derive(Clone, Copy, Debug)]
pub struct WindowLender<A> {
    quota: A,
    terms: LeaseTerms,
    window: Tick,
}

/// What the store keeps of a key. The default is fresh.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowState<S> {
    /// The counts. What is lent is counted.
    pub counts: S,
    /// The number of the window in which units are out.
    pub window: u64,
    /// The units that are out in that window.
    pub lent: u64,
}

impl<A: Algorithm> WindowLender<A> {
    /// A lender of a quota that counts in windows. `None` if the terms are those of a bucket.
    #[must_use]
    pub fn new(quota: A, terms: &LeaseTerms) -> Option<Self> {
        Some(Self {
            quota,
            window: terms.window().filter(|window| *window > 0)?,
            terms: *terms,
        })
    }

    /// Decides about `cost` units, takes them if they fit, and lends.
    pub fn acquire(
        &self,
        state: &mut WindowState<A::State>,
        now: Tick,
        cost: u64,
        ask: &Ask,
    ) -> (Assessment, Option<Lot>) {
        let window = now / self.window;
        if state.window != window {
            (state.window, state.lent) = (window, 0);
        }
        if let Some(closed) = ask.closed {
            self.close(state, now, closed);
        }
        let answer = self.quota.acquire(&mut state.counts, now, cost);
        if !answer.fits {
            self.quota.repair(&mut state.counts, now);
            return (answer, None);
        }
        let room = self.terms.reserve().saturating_sub(state.lent);
        let units = self.terms.lot(ask.parking, answer.remaining, room);
        // A state of the future counts in its own window: what is lent would be spent before.
        if units == 0 || self.quota.is_ahead(&state.counts, now) {
            return (answer, None);
        }
        self.quota.take(&mut state.counts, now, units);
        state.lent += units;
        let after = self.quota.assess(&state.counts, now, 0);
        let answer = Assessment {
            remaining: after.remaining,
            reset_after: after.reset_after,
            ..answer
        };
        let generation = window;
        (answer, Some(Lot::Parking { units, generation }))
    }

    /// A lot that comes back: its units are not counted any more, if their window is not over.
    fn close(&self, state: &mut WindowState<A::State>, now: Tick, closed: Closed) {
        if closed.generation != state.window
            || state.lent < closed.size
            || closed.size < closed.left
        {
            return;
        }
        state.lent -= closed.size;
        if closed.left > 0 {
            let taken = Taken {
                at: now,
                fresh_at: self.quota.fresh_at(&state.counts),
            };
            self.quota
                .refund(&mut state.counts, now, taken, closed.left);
        }
    }
}
