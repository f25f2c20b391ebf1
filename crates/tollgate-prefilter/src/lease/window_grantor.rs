//! The store's side of leases, for windows that count.

use tollgate_core::{
    Tick,
    algorithm::{Algorithm, Assessment, Taken},
};

use crate::lease::{
    grant::{Grant, LeaseQuery, ReturnedLease},
    terms::LeaseTerms,
};

/// Grants leases of a fixed window, or of a sliding window of two counters.
///
/// A lease is counted in the window in which it is granted, and ends with it. So its units count where they are spent, and nothing
/// has to be held back. The reserve bounds how many units may sit unused in other processes while one denies a request.
///
/// A lease may come back with more units than it was granted with: those of earlier leases of the window, which had been spent on
/// requests that were then not let through. One of the window before comes back as long as it weighs.
///
/// ```
/// use tollgate_core::{
///     MINUTE, Quota,
///     algorithm::{Algorithm, FixedWindow},
/// };
/// use tollgate_prefilter::{LeaseQuery, LeaseTerms, WindowGrantor, WindowState};
///
/// let quota = Quota::fixed_window(1_000, MINUTE);
/// let terms = LeaseTerms::new(&quota, 100)?;
/// let window = FixedWindow::new(&quota).expect("a window");
/// let grantor = WindowGrantor::new(window, &terms).expect("terms of a window");
///
/// let (mut state, now) = (WindowState::default(), 1_700_000_000_000_000);
/// let query = LeaseQuery::default().with_tracked(1_000);
/// let (answer, grant) = grantor.acquire(&mut state, now, 1, &query);
/// // A quarter of the reserve of a hundred.
/// assert_eq!(grant.map(|grant| grant.units()), Some(25));
/// assert_eq!(answer.remaining, 1_000 - 1 - 25);
/// # Ok::<(), tollgate_prefilter::NoLease>(())
/// ```
///
/// # Accuracy
///
/// No window counts more than its limit, whatever is lost and whichever process crashes: what is granted is counted until it has come
/// back. While the store's clock is set back behind a window that counts, nothing is granted. When it goes forward, leases that
/// are out are spent in a window that does not count them, at most the reserve.
#[derive(Clone, Copy, Debug)]
pub struct WindowGrantor<A> {
    quota: A,
    terms: LeaseTerms,
    window: Tick,
}

/// What the store keeps of a key. The default is fresh.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
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
            window: terms.window().filter(|window| *window > 0)?,
            terms: *terms,
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
        let window = now / self.window;
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
        let room = self.terms.reserve().saturating_sub(state.granted);
        let units = self.terms.grant(query.tracked, answer.remaining, room);
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
    ///
    /// ```
    /// use tollgate_core::{
    ///     MINUTE, Quota,
    ///     algorithm::{Algorithm, FixedWindow},
    /// };
    /// use tollgate_prefilter::{LeaseQuery, LeaseTerms, WindowGrantor, WindowState};
    ///
    /// let quota = Quota::fixed_window(1_000, MINUTE);
    /// let window = FixedWindow::new(&quota).expect("a window");
    /// let terms = LeaseTerms::new(&quota, 100)?;
    /// let grantor = WindowGrantor::new(window, &terms).expect("terms of a window");
    /// let (mut state, now) = (WindowState::default(), 1_700_000_000_000_000);
    /// let query = LeaseQuery::default().with_tracked(1_000);
    /// grantor.acquire(&mut state, now, 900, &query);
    ///
    /// // A quarter of the reserve of a hundred is somewhere.
    /// grantor.reset(&mut state, now);
    /// assert_eq!(grantor.acquire(&mut state, now, 0, &LeaseQuery::default()).0.remaining, 1_000 - 25);
    /// # Ok::<(), tollgate_prefilter::NoLease>(())
    /// ```
    pub fn reset(&self, state: &mut WindowState<A::State>, now: Tick) {
        let starts = state.window.saturating_mul(self.window);
        let is_over = state.window < now / self.window;
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

    /// Until when units weigh that are counted in the window of this number.
    fn weighs_until(&self, window: u64) -> Tick {
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

    /// Windows of a second, with 100 units, 40 of which may be granted in leases of up to a quarter.
    fn grantor<A: Algorithm>(quota: &Quota) -> WindowGrantor<A> {
        let terms = LeaseTerms::new(quota, 400).expect("it is granted");
        WindowGrantor::new(A::new(quota).expect("a window"), &terms).expect("terms of a window")
    }

    fn fixed() -> WindowGrantor<FixedWindow> {
        grantor(&Quota::fixed_window(100, SECOND))
    }

    const QUERY: LeaseQuery = LeaseQuery {
        returned: None,
        tracked: 10,
        scheduled: 0,
    };

    fn back(size: u64, left: u64, generation: u64) -> LeaseQuery {
        let returned = Some(ReturnedLease {
            size,
            left,
            generation,
        });
        LeaseQuery {
            returned,
            ..LeaseQuery::default()
        }
    }

    #[test]
    fn what_is_granted_is_counted_at_once() {
        let (grantor, mut state) = (fixed(), WindowState::default());
        let (answer, grant) = grantor.acquire(&mut state, 5_000_000, 1, &QUERY);
        let (units, generation) = (10, 5);
        assert_eq!(grant, Some(Grant::Tracked { units, generation }));
        assert_eq!(answer.remaining, 89);
    }

    #[test]
    fn no_more_is_granted_in_a_window_than_the_reserve() {
        let (grantor, mut state) = (fixed(), WindowState::default());
        let grants = (0..50).filter_map(|_| grantor.acquire(&mut state, 5_000_000, 1, &QUERY).1);
        assert!(grants.map(|grant| grant.units()).sum::<u64>() <= 40);
    }

    #[test]
    fn what_comes_back_in_its_window_is_there_for_the_request() {
        let (grantor, mut state) = (fixed(), WindowState::default());
        grantor.acquire(&mut state, 5_000_000, 1, &QUERY);
        let (answer, _) = grantor.acquire(&mut state, 5_900_000, 92, &back(10, 3, 5));
        assert_eq!((answer.fits, answer.remaining), (true, 0));
    }

    #[test]
    fn what_comes_back_after_its_window_is_lost() {
        let (grantor, mut state) = (fixed(), WindowState::default());
        grantor.acquire(&mut state, 5_000_000, 1, &QUERY);
        grantor.acquire(&mut state, 6_000_000, 1, &QUERY);
        let (answer, _) = grantor.acquire(&mut state, 6_000_000, 0, &back(10, 10, 5));
        assert_eq!(answer.remaining, 89);
    }

    #[test]
    fn what_comes_back_leaves_the_window_before_as_it_is() {
        let quota = Quota::sliding_window(100, SECOND);
        let (grantor, mut state) = (grantor::<SlidingWindow>(&quota), WindowState::default());
        grantor.acquire(&mut state, 5_500_000, 40, &LeaseQuery::default());
        grantor.acquire(&mut state, 6_500_000, 1, &QUERY);
        let (answer, _) = grantor.acquire(&mut state, 6_500_000, 0, &back(10, 10, 6));
        assert_eq!(answer.remaining, 100 - 20 - 1);
    }

    #[test]
    fn more_comes_back_than_was_granted_where_units_of_earlier_leases_are_among_it() {
        let (grantor, mut state) = (fixed(), WindowState::default());
        for _ in 0..2 {
            grantor.acquire(&mut state, 5_000_000, 1, &QUERY);
        }
        let left = |state: &mut _, query: LeaseQuery| {
            grantor.acquire(state, 5_000_000, 0, &query).0.remaining
        };
        // Leases of ten and eight.
        assert_eq!(left(&mut state, back(10, 0, 5)), 100 - 2 - 18);
        assert_eq!(left(&mut state, back(8, 18, 5)), 98);
        assert_eq!(state.granted, 0);
        // What is not known was granted by a state that is gone.
        assert_eq!(left(&mut state, back(1, 2, 5)), 98);
    }

    #[test]
    fn units_of_the_window_before_come_back_where_they_weigh() {
        let quota = Quota::sliding_window(100, SECOND);
        let (grantor, mut state) = (grantor::<SlidingWindow>(&quota), WindowState::default());
        grantor.acquire(&mut state, 5_500_000, 30, &QUERY);
        let left = |state: &mut _, at, query: LeaseQuery| {
            grantor.acquire(state, at, 0, &query).0.remaining
        };
        assert_eq!(left(&mut state, 6_000_000, LeaseQuery::default()), 60);
        assert_eq!(left(&mut state, 6_000_000, back(10, 10, 5)), 70);
        // Two windows later nothing is left of it.
        grantor.acquire(&mut state, 6_500_000, 20, &LeaseQuery::default());
        assert_eq!(left(&mut state, 7_000_000, back(10, 10, 5)), 80);
    }

    #[test]
    fn a_clock_that_went_back_grants_nothing_of_a_window_to_come() {
        let (grantor, mut state) = (fixed(), WindowState::default());
        grantor.acquire(&mut state, 6_000_000, 1, &QUERY);
        let (answer, grant) = grantor.acquire(&mut state, 5_999_999, 1, &QUERY);
        assert_eq!((answer.remaining, grant), (88, None));
    }

    #[test]
    fn terms_of_a_bucket_grant_no_window() {
        let quota = FixedWindow::new(&Quota::fixed_window(100, SECOND)).expect("a window");
        let terms = LeaseTerms::of_bucket(10, 10);
        assert!(WindowGrantor::new(quota, &terms).is_none());
    }

    #[test]
    fn after_a_reset_what_is_granted_stays_counted_in_its_window() {
        fn holds<A: Algorithm>(quota: &Quota) {
            let (grantor, mut state) = (grantor::<A>(quota), WindowState::default());
            grantor.acquire(&mut state, 4_900_000, 60, &LeaseQuery::default());
            let (_, grant) = grantor.acquire(&mut state, 5_000_000, 30, &QUERY);
            let granted = grant.expect("it is granted").units();
            grantor.reset(&mut state, 5_100_000);
            let (answer, _) = grantor.acquire(&mut state, 5_100_000, 0, &LeaseQuery::default());
            assert_eq!(answer.remaining, 100 - granted);
            let (answer, _) = grantor.acquire(&mut state, 5_200_000, 0, &back(granted, granted, 5));
            assert_eq!(answer.remaining, 100);
        }
        holds::<FixedWindow>(&Quota::fixed_window(100, SECOND));
        holds::<SlidingWindow>(&Quota::sliding_window(100, SECOND));
    }

    #[test]
    fn after_a_reset_a_window_whose_leases_have_run_out_is_fresh() {
        let grantor = fixed();
        let mut state = WindowState::default();
        grantor.acquire(&mut state, 5_000_000, 30, &QUERY);
        grantor.reset(&mut state, 6_000_000);
        assert_eq!(state, WindowState::default());
    }
}
