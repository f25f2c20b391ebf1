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
///
/// A lot may come back with more units than it was lent with: those of earlier lots of the window, which had been spent on
/// requests that were then not let through. One of the window before comes back as long as it weighs.
///
/// ```
/// use tollgate_core::{
///     MINUTE, Quota,
///     algorithm::{Algorithm, FixedWindow},
/// };
/// use tollgate_prefilter::{Ask, LeaseTerms, WindowLender, WindowState};
///
/// let quota = Quota::fixed_window(1_000, MINUTE);
/// let terms = LeaseTerms::new(&quota, 100)?;
/// let window = FixedWindow::new(&quota).expect("a window");
/// let lender = WindowLender::new(window, &terms).expect("terms of a window");
///
/// let (mut state, now) = (WindowState::default(), 1_700_000_000_000_000);
/// let ask = Ask { parking: 1_000, ..Ask::default() };
/// let (answer, lot) = lender.acquire(&mut state, now, 1, &ask);
/// // A quarter of the reserve of a hundred.
/// assert_eq!(lot.map(|lot| lot.units()), Some(25));
/// assert_eq!(answer.remaining, 1_000 - 1 - 25);
/// # Ok::<(), tollgate_prefilter::NoLease>(())
/// ```
///
/// # Accuracy
///
/// No window counts more than its limit, whatever is lost and whoever crashes: what is lent is counted until it has come
/// back. While the store's clock is set back behind a window that counts, nothing is lent. When it goes forward, lots that
/// are out are spent in a window that does not count them, at most the reserve.
#[derive(Clone, Copy, Debug)]
pub struct WindowLender<A> {
    pub(super) quota: A,
    terms: LeaseTerms,
    pub(super) window: Tick,
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

    /// A lot that comes back: its units are not counted any more, as far as their window counts.
    ///
    /// It may have more units left than it was lent with: those of lots before it that came back later. Units of the window before
    /// weigh in a sliding window until this one is over.
    fn close(&self, state: &mut WindowState<A::State>, now: Tick, closed: Closed) {
        // While the clock is set back it is not known what was counted where.
        if self.quota.is_ahead(&state.counts, now) {
            return;
        }
        if closed.generation == state.window {
            // One that is not known was counted in a state that is gone.
            let Some(lent) = state.lent.checked_sub(closed.size) else {
                return;
            };
            state.lent = lent;
        } else if closed.generation.checked_add(1) != Some(state.window) {
            return;
        }
        if closed.left > 0 {
            let taken = Taken {
                at: now,
                fresh_at: self.weighs_until(closed.generation),
            };
            self.quota
                .refund(&mut state.counts, now, taken, closed.left);
        }
    }

    /// Until when units weigh that are counted in the window of this number.
    pub(super) fn weighs_until(&self, window: u64) -> Tick {
        let mut state = A::State::default();
        self.quota
            .take(&mut state, window.saturating_mul(self.window), 1);
        self.quota.fresh_at(&state)
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{
        Quota, SECOND,
        algorithm::{FixedWindow, SlidingWindow},
    };

    use super::*;

    /// Windows of a second, with 100 units, 40 of which may be lent in lots of up to a quarter.
    fn lender<A: Algorithm>(quota: &Quota) -> WindowLender<A> {
        let terms = LeaseTerms::new(quota, 400).expect("it is lent");
        WindowLender::new(A::new(quota).expect("a window"), &terms).expect("terms of a window")
    }

    fn fixed() -> WindowLender<FixedWindow> {
        lender(&Quota::fixed_window(100, SECOND))
    }

    const WANTS: Ask = Ask {
        closed: None,
        parking: 10,
        segment: 0,
    };

    fn back(size: u64, left: u64, generation: u64) -> Ask {
        let closed = Some(Closed {
            size,
            left,
            generation,
        });
        Ask {
            closed,
            ..Ask::default()
        }
    }

    #[test]
    fn what_is_lent_is_counted_at_once() {
        let (lender, mut state) = (fixed(), WindowState::default());
        let (answer, lot) = lender.acquire(&mut state, 5_000_000, 1, &WANTS);
        let (units, generation) = (10, 5);
        assert_eq!(lot, Some(Lot::Parking { units, generation }));
        assert_eq!(answer.remaining, 89);
    }

    #[test]
    fn no_more_is_lent_in_a_window_than_the_reserve() {
        let (lender, mut state) = (fixed(), WindowState::default());
        let lots = (0..50).filter_map(|_| lender.acquire(&mut state, 5_000_000, 1, &WANTS).1);
        assert!(lots.map(|lot| lot.units()).sum::<u64>() <= 40);
    }

    #[test]
    fn what_comes_back_in_its_window_is_there_for_the_request() {
        let (lender, mut state) = (fixed(), WindowState::default());
        lender.acquire(&mut state, 5_000_000, 1, &WANTS);
        let (answer, _) = lender.acquire(&mut state, 5_900_000, 92, &back(10, 3, 5));
        assert_eq!((answer.fits, answer.remaining), (true, 0));
    }

    #[test]
    fn what_comes_back_after_its_window_is_lost() {
        let (lender, mut state) = (fixed(), WindowState::default());
        lender.acquire(&mut state, 5_000_000, 1, &WANTS);
        lender.acquire(&mut state, 6_000_000, 1, &WANTS);
        let (answer, _) = lender.acquire(&mut state, 6_000_000, 0, &back(10, 10, 5));
        assert_eq!(answer.remaining, 89);
    }

    #[test]
    fn what_comes_back_leaves_the_window_before_as_it_is() {
        let quota = Quota::sliding_window(100, SECOND);
        let (lender, mut state) = (lender::<SlidingWindow>(&quota), WindowState::default());
        lender.acquire(&mut state, 5_500_000, 40, &Ask::default());
        lender.acquire(&mut state, 6_500_000, 1, &WANTS);
        let (answer, _) = lender.acquire(&mut state, 6_500_000, 0, &back(10, 10, 6));
        assert_eq!(answer.remaining, 100 - 20 - 1);
    }

    #[test]
    fn more_comes_back_than_was_lent_where_units_of_earlier_lots_are_among_it() {
        let (lender, mut state) = (fixed(), WindowState::default());
        for _ in 0..2 {
            lender.acquire(&mut state, 5_000_000, 1, &WANTS);
        }
        let left = |state: &mut _, ask: Ask| lender.acquire(state, 5_000_000, 0, &ask).0.remaining;
        // Lots of ten and eight.
        assert_eq!(left(&mut state, back(10, 0, 5)), 100 - 2 - 18);
        assert_eq!(left(&mut state, back(8, 18, 5)), 98);
        assert_eq!(state.lent, 0);
        // What is not known was lent by a state that is gone.
        assert_eq!(left(&mut state, back(1, 2, 5)), 98);
    }

    #[test]
    fn units_of_the_window_before_come_back_where_they_weigh() {
        let quota = Quota::sliding_window(100, SECOND);
        let (lender, mut state) = (lender::<SlidingWindow>(&quota), WindowState::default());
        lender.acquire(&mut state, 5_500_000, 30, &WANTS);
        let left = |state: &mut _, at, ask: Ask| lender.acquire(state, at, 0, &ask).0.remaining;
        assert_eq!(left(&mut state, 6_000_000, Ask::default()), 60);
        assert_eq!(left(&mut state, 6_000_000, back(10, 10, 5)), 70);
        // Two windows later nothing is left of it.
        lender.acquire(&mut state, 6_500_000, 20, &Ask::default());
        assert_eq!(left(&mut state, 7_000_000, back(10, 10, 5)), 80);
    }

    #[test]
    fn a_clock_that_went_back_lends_nothing_of_a_window_to_come() {
        let (lender, mut state) = (fixed(), WindowState::default());
        lender.acquire(&mut state, 6_000_000, 1, &WANTS);
        let (answer, lot) = lender.acquire(&mut state, 5_999_999, 1, &WANTS);
        assert_eq!((answer.remaining, lot), (88, None));
    }

    #[test]
    fn terms_of_a_bucket_lend_no_window() {
        let quota = FixedWindow::new(&Quota::fixed_window(100, SECOND)).expect("a window");
        let terms = LeaseTerms::of_bucket(10, 10);
        assert!(WindowLender::new(quota, &terms).is_none());
    }
}
