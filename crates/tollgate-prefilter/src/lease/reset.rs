//! What a reset leaves: the units that processes hold.

use tollgate_core::{
    Tick,
    algorithm::{Algorithm, GcraState},
};

use crate::lease::{
    bucket_lender::{BucketLender, BucketState},
    window_lender::{WindowLender, WindowState},
};

impl BucketLender {
    /// Forgets what was used, and not what is parked: that may still be spent, so it is held back from the burst until it has
    /// come back or run out. What was lent ahead is not known, and is spent beside it.
    ///
    /// ```
    /// use tollgate_core::{MINUTE, Quota};
    /// use tollgate_prefilter::{Ask, BucketLender, BucketState, LeaseTerms};
    ///
    /// let quota = Quota::gcra(6_000, MINUTE);
    /// let lender = BucketLender::new(&quota, LeaseTerms::new(&quota, 100)?).expect("a bucket");
    /// let (mut state, now) = (BucketState::default(), 1_700_000_000_000_000);
    /// let ask = Ask { parking: 1_000, ..Ask::default() };
    /// lender.acquire(&mut state, now, 5_000, &ask);
    ///
    /// // A quarter of the reserve of six hundred is somewhere.
    /// lender.reset(&mut state, now);
    /// assert_eq!(lender.acquire(&mut state, now, 0, &Ask::default()).0.remaining, 6_000 - 150);
    /// # Ok::<(), tollgate_prefilter::NoLease>(())
    /// ```
    pub fn reset(&self, state: &mut BucketState, now: Tick) {
        self.settle(state, now);
        (state.arrival, state.owed) = (GcraState::default(), 0);
        self.quota
            .hold_back(&mut state.arrival, now, state.loans.total());
    }
}

impl<A: Algorithm> WindowLender<A> {
    /// Forgets what was used, and not what is lent: that is counted as before, in its window.
    ///
    /// ```
    /// use tollgate_core::{
    ///     MINUTE, Quota,
    ///     algorithm::{Algorithm, FixedWindow},
    /// };
    /// use tollgate_prefilter::{Ask, LeaseTerms, WindowLender, WindowState};
    ///
    /// let quota = Quota::fixed_window(1_000, MINUTE);
    /// let window = FixedWindow::new(&quota).expect("a window");
    /// let terms = LeaseTerms::new(&quota, 100)?;
    /// let lender = WindowLender::new(window, &terms).expect("terms of a window");
    /// let (mut state, now) = (WindowState::default(), 1_700_000_000_000_000);
    /// let ask = Ask { parking: 1_000, ..Ask::default() };
    /// lender.acquire(&mut state, now, 900, &ask);
    ///
    /// // A quarter of the reserve of a hundred is somewhere.
    /// lender.reset(&mut state, now);
    /// assert_eq!(lender.acquire(&mut state, now, 0, &Ask::default()).0.remaining, 1_000 - 25);
    /// # Ok::<(), tollgate_prefilter::NoLease>(())
    /// ```
    pub fn reset(&self, state: &mut WindowState<A::State>, now: Tick) {
        let starts = state.window.saturating_mul(self.window);
        let is_over = state.window < now / self.window;
        if is_over || state.lent == 0 {
            *state = WindowState::default();
            return;
        }
        state.counts = A::State::default();
        // While the clock is set back, the window is one to come.
        self.quota
            .take(&mut state.counts, now.max(starts), state.lent);
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
        lot::{Ask, Closed, Lot},
        terms::LeaseTerms,
    };

    const WANTS: Ask = Ask {
        closed: None,
        parking: 20,
        segment: 0,
    };

    fn back(lot: Option<Lot>, left: u64) -> Ask {
        let Some(Lot::Parking { units, generation }) = lot else {
            panic!("{lot:?} is not parked");
        };
        let size = units;
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

    /// A burst of 100 units, one a µs; lots of 20 that live for a ms.
    fn bucket() -> BucketLender {
        let quota = Quota::token_bucket(100).refill(1, Duration::from_micros(1));
        let terms = LeaseTerms::of_bucket(40, 1_000).in_lots_of(2, 1);
        BucketLender::new(&quota, terms).expect("a bucket")
    }

    fn window<A: Algorithm>(quota: &Quota) -> WindowLender<A> {
        let terms = LeaseTerms::new(quota, 400).expect("it is lent");
        WindowLender::new(A::new(quota).expect("a window"), &terms).expect("terms of a window")
    }

    #[test]
    fn a_bucket_is_full_but_for_what_is_parked() {
        let (lender, mut state) = (bucket(), BucketState::default());
        let left = |state: &mut BucketState, now| {
            let (answer, _) = lender.acquire(state, now, 0, &Ask::default());
            answer.remaining
        };
        let (_, lot) = lender.acquire(&mut state, 5_000, 70, &WANTS);
        let parked = lot.expect("it is lent").units();
        lender.reset(&mut state, 5_010);
        assert_eq!(left(&mut state, 5_010), 100 - parked);
        // Until it comes back, or has run out.
        let mut idle = state;
        assert_eq!(left(&mut idle, 6_999), 100 - parked);
        assert_eq!(left(&mut idle, 7_000 + parked), 100);
        lender.acquire(&mut state, 5_020, 0, &back(lot, parked));
        assert_eq!(left(&mut state, 5_020), 100);
    }

    #[test]
    fn a_bucket_of_which_nothing_is_parked_is_fresh() {
        let (lender, mut state) = (bucket(), BucketState::default());
        let (_, lot) = lender.acquire(&mut state, 5_000, 70, &WANTS);
        lender.acquire(&mut state, 5_005, 0, &back(lot, 0));
        lender.reset(&mut state, 5_010);
        assert_eq!(state, BucketState::default());
    }

    #[test]
    fn a_lot_from_before_is_not_taken_for_a_later_one() {
        let (lender, mut state) = (bucket(), BucketState::default());
        let (_, old) = lender.acquire(&mut state, 5_000, 1, &WANTS);
        lender.reset(&mut state, 5_010);
        lender.acquire(&mut state, 5_020, 1, &WANTS);
        let both = state.loans.total();
        lender.acquire(&mut state, 5_030, 0, &back(old, 0));
        assert_eq!(state.loans.total() + 20, both);
    }

    #[test]
    fn what_is_lent_stays_counted_in_its_window() {
        fn holds<A: Algorithm>(quota: &Quota) {
            let (lender, mut state) = (window::<A>(quota), WindowState::default());
            lender.acquire(&mut state, 4_900_000, 60, &Ask::default());
            let (_, lot) = lender.acquire(&mut state, 5_000_000, 30, &WANTS);
            let lent = lot.expect("it is lent").units();
            lender.reset(&mut state, 5_100_000);
            let (answer, _) = lender.acquire(&mut state, 5_100_000, 0, &Ask::default());
            assert_eq!(answer.remaining, 100 - lent);
            let (answer, _) = lender.acquire(&mut state, 5_200_000, 0, &back(lot, lent));
            assert_eq!(answer.remaining, 100);
        }
        holds::<FixedWindow>(&Quota::fixed_window(100, SECOND));
        holds::<SlidingWindow>(&Quota::sliding_window(100, SECOND));
    }

    #[test]
    fn a_window_whose_lots_have_run_out_is_fresh() {
        let lender = window::<FixedWindow>(&Quota::fixed_window(100, SECOND));
        let mut state = WindowState::default();
        lender.acquire(&mut state, 5_000_000, 30, &WANTS);
        lender.reset(&mut state, 6_000_000);
        assert_eq!(state, WindowState::default());
    }
}
