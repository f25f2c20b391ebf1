//! What a reset leaves: the units that processes hold.

use tollgate_core::{
    Tick,
    algorithm::{Algorithm, GcraState},
};

use crate::lease::{
    bucket_grantor::{BucketGrantor, BucketState},
    window_grantor::{WindowGrantor, WindowState},
};

impl BucketGrantor {
    /// Forgets the used units, but not the units on lease: they may still be spent, so they are held back from the burst until they are
    /// returned or expire. Scheduled leases are not tracked, and are spent in addition.
    ///
    /// ```
    /// use tollgate_core::{MINUTE, Quota};
    /// use tollgate_prefilter::{LeaseQuery, BucketGrantor, BucketState, LeaseTerms};
    ///
    /// let quota = Quota::gcra(6_000, MINUTE);
    /// let grantor = BucketGrantor::new(&quota, LeaseTerms::new(&quota, 100)?).expect("a bucket");
    /// let (mut state, now) = (BucketState::default(), 1_700_000_000_000_000);
    /// let query = LeaseQuery::default().with_tracked(1_000);
    /// grantor.acquire(&mut state, now, 5_000, &query);
    ///
    /// // A quarter of the reserve of six hundred is somewhere.
    /// grantor.reset(&mut state, now);
    /// assert_eq!(grantor.acquire(&mut state, now, 0, &LeaseQuery::default()).0.remaining, 6_000 - 150);
    /// # Ok::<(), tollgate_prefilter::NoLease>(())
    /// ```
    pub fn reset(&self, state: &mut BucketState, now: Tick) {
        self.settle(state, now);
        (state.arrival, state.owed) = (GcraState::default(), 0);
        self.quota
            .hold_back(&mut state.arrival, now, state.leases.total());
    }
}

impl<A: Algorithm> WindowGrantor<A> {
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
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollgate_core::{
        Quota, SECOND,
        algorithm::{FixedWindow, SlidingWindow},
    };

    use super::*;
    use crate::lease::{
        grant::{Grant, LeaseQuery, ReturnedLease},
        terms::LeaseTerms,
    };

    const QUERY: LeaseQuery = LeaseQuery {
        returned: None,
        tracked: 20,
        scheduled: 0,
    };

    fn back(grant: Option<Grant>, left: u64) -> LeaseQuery {
        let Some(Grant::Tracked { units, generation }) = grant else {
            panic!("{grant:?} is not on lease");
        };
        let size = units;
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

    /// A burst of 100 units, one a µs; leases of 20 that live for a ms.
    fn bucket() -> BucketGrantor {
        let quota = Quota::token_bucket(100).refill(1, Duration::from_micros(1));
        let terms = LeaseTerms::of_bucket(40, 1_000).in_grants_of(2, 1);
        BucketGrantor::new(&quota, terms).expect("a bucket")
    }

    fn window<A: Algorithm>(quota: &Quota) -> WindowGrantor<A> {
        let terms = LeaseTerms::new(quota, 400).expect("it is granted");
        WindowGrantor::new(A::new(quota).expect("a window"), &terms).expect("terms of a window")
    }

    #[test]
    fn a_bucket_is_full_but_for_what_is_on_lease() {
        let (grantor, mut state) = (bucket(), BucketState::default());
        let left = |state: &mut BucketState, now| {
            let (answer, _) = grantor.acquire(state, now, 0, &LeaseQuery::default());
            answer.remaining
        };
        let (_, grant) = grantor.acquire(&mut state, 5_000, 70, &QUERY);
        let tracked = grant.expect("it is granted").units();
        grantor.reset(&mut state, 5_010);
        assert_eq!(left(&mut state, 5_010), 100 - tracked);
        // Until it comes back, or has run out.
        let mut idle = state;
        assert_eq!(left(&mut idle, 6_999), 100 - tracked);
        assert_eq!(left(&mut idle, 7_000 + tracked), 100);
        grantor.acquire(&mut state, 5_020, 0, &back(grant, tracked));
        assert_eq!(left(&mut state, 5_020), 100);
    }

    #[test]
    fn a_bucket_of_which_nothing_is_on_lease_is_fresh() {
        let (grantor, mut state) = (bucket(), BucketState::default());
        let (_, grant) = grantor.acquire(&mut state, 5_000, 70, &QUERY);
        grantor.acquire(&mut state, 5_005, 0, &back(grant, 0));
        grantor.reset(&mut state, 5_010);
        assert_eq!(state, BucketState::default());
    }

    #[test]
    fn a_lease_from_before_is_not_taken_for_a_later_one() {
        let (grantor, mut state) = (bucket(), BucketState::default());
        let (_, old) = grantor.acquire(&mut state, 5_000, 1, &QUERY);
        grantor.reset(&mut state, 5_010);
        grantor.acquire(&mut state, 5_020, 1, &QUERY);
        let both = state.leases.total();
        grantor.acquire(&mut state, 5_030, 0, &back(old, 0));
        assert_eq!(state.leases.total() + 20, both);
    }

    #[test]
    fn what_is_granted_stays_counted_in_its_window() {
        fn holds<A: Algorithm>(quota: &Quota) {
            let (grantor, mut state) = (window::<A>(quota), WindowState::default());
            grantor.acquire(&mut state, 4_900_000, 60, &LeaseQuery::default());
            let (_, grant) = grantor.acquire(&mut state, 5_000_000, 30, &QUERY);
            let granted = grant.expect("it is granted").units();
            grantor.reset(&mut state, 5_100_000);
            let (answer, _) = grantor.acquire(&mut state, 5_100_000, 0, &LeaseQuery::default());
            assert_eq!(answer.remaining, 100 - granted);
            let (answer, _) = grantor.acquire(&mut state, 5_200_000, 0, &back(grant, granted));
            assert_eq!(answer.remaining, 100);
        }
        holds::<FixedWindow>(&Quota::fixed_window(100, SECOND));
        holds::<SlidingWindow>(&Quota::sliding_window(100, SECOND));
    }

    #[test]
    fn a_window_whose_leases_have_run_out_is_fresh() {
        let grantor = window::<FixedWindow>(&Quota::fixed_window(100, SECOND));
        let mut state = WindowState::default();
        grantor.acquire(&mut state, 5_000_000, 30, &QUERY);
        grantor.reset(&mut state, 6_000_000);
        assert_eq!(state, WindowState::default());
    }
}
