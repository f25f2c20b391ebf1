//! The store's side of leases, for buckets.

use tollgate_core::{
    Quota, Retry, Tick,
    algorithm::{Algorithm, Arrival, ArrivalState, Assessment},
};

use crate::lease::{
    debt::Owing,
    lot::{Ask, Closed, Lot},
    terms::LeaseTerms,
};

/// Lends units of a token bucket, a GCRA or a leaky bucket.
///
/// A store that does the same in another language is held to this one.
///
/// ```
/// use tollgate_core::{MINUTE, Quota};
/// use tollgate_prefilter::{Ask, BucketLender, BucketState, LeaseTerms};
///
/// let quota = Quota::gcra(6_000, MINUTE);
/// let lender = BucketLender::new(&quota, LeaseTerms::new(&quota, 100)?).expect("a bucket");
///
/// let (mut state, now) = (BucketState::default(), 1_700_000_000_000_000);
/// let ask = Ask { parking: 1_000, ..Ask::default() };
/// let (answer, lot) = lender.acquire(&mut state, now, 1, &ask);
/// // A quarter of the reserve of six hundred.
/// assert_eq!(lot.map(|lot| lot.units()), Some(150));
/// assert_eq!(answer.remaining, 6_000 - 1 - 150);
///
/// // Time brings back what was granted, and not what is parked.
/// let (answer, _) = lender.acquire(&mut state, now + 9_000_000, 0, &Ask::default());
/// assert_eq!(answer.remaining, 6_000 - 150);
/// # Ok::<(), tollgate_prefilter::NoLease>(())
/// ```
///
/// # Accuracy
///
/// All processes together never admit more than the burst and what comes back, as if each request had asked, while the
/// store's clock runs like theirs to a thousandth.
///
/// When the store's clock **goes back**, no more passes than if it had not, and no more is parked than the reserve: what was
/// parked stays so, for five lives of a lot at most. Only a lot that is handed back before the step in a question which
/// arrives later than a life after the step may count twice. When it **goes forward**, the exact bucket fills up, by a burst at
/// most. This one does so too, and forgets lots that processes still hold: they are spent above it, once, so that at most
/// the reserve, what is in transit and what is lent ahead comes on top.
#[derive(Clone, Copy, Debug)]
pub struct BucketLender {
    pub(super) quota: Arrival,
    pub(super) owing: Owing,
    terms: LeaseTerms,
}

/// What the store keeps of a key: the arrival time, and what is parked. The default is fresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketState {
    /// The arrival time. What is lent is taken from it.
    pub arrival: ArrivalState,
    /// What is parked.
    pub loans: Loans,
    /// For how many µs more than it takes to fill up the bucket is behind, as of the last question: segments are lent that
    /// have not come back.
    pub owed: Tick,
}

/// Units in parking lots, in two generations of the length of a lot's life.
///
/// A lot of generation `g` is granted in `[g·life, (g+1)·life)` and has run out before `(g+2)·life`. A lot counts with its
/// whole size until it is handed back or its generation is over, whatever was spent of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loans {
    /// The number of the current generation.
    pub generation: u64,
    /// Units lent in the current generation.
    pub current: u64,
    /// Units lent in the one before.
    pub previous: u64,
}

/// A clock that goes back by so many generations at most leaves their number as it is. Numbered anew, a lot from before
/// the step would be taken for one that is lent when its number comes again, and that one forgotten too early. By more than
/// these, the lots from before have run out by then.
const AHEAD: u64 = 3;

impl Loans {
    /// All units that are parked.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.current.saturating_add(self.previous)
    }
}

impl BucketLender {
    /// A lender of a quota. `None` if it is not a bucket, or not valid, or if the terms are those of a window.
    #[must_use]
    pub fn new(quota: &Quota, terms: LeaseTerms) -> Option<Self> {
        let bucket = Arrival::new(quota).filter(|_| terms.window().is_none())?;
        Some(Self {
            quota: bucket,
            owing: Owing::new(quota, bucket),
            terms,
        })
    }

    /// Decides about `cost` units, takes them if they fit, and lends.
    ///
    /// The order matters: the burst is cut by what is parked before anything is handed back; what is handed back is there
    /// for the request; and what the bucket has is lent only where the request was granted. A segment is what it has not, and
    /// is lent to whom it has refused too: that is who waits for it.
    pub fn acquire(
        &self,
        state: &mut BucketState,
        now: Tick,
        cost: u64,
        ask: &Ask,
    ) -> (Assessment, Option<Lot>) {
        self.settle(state, now);
        if let Some(closed) = ask.closed {
            self.close(state, now, closed);
        }
        let mut arrival = state.arrival;
        self.owing.repair(&mut arrival, now, state.owed);
        let mut answer = self.owing.assess(&arrival, now, cost);
        if cost > 0 {
            state.arrival = arrival;
        }
        if answer.fits {
            self.quota.take(&mut state.arrival, now, cost);
        } else {
            answer.retry = self.retry(state, now, cost);
        }
        let lot = self.lend(state, now, &answer, ask);
        state.owed = self.owing.time(&state.arrival, now);
        if !answer.fits && lot.is_none() {
            return (answer, lot);
        }
        let lent = lot.map_or(0, |lot| lot.units());
        // What is parked comes back by itself. Told with it, a refund would give back what time has.
        let mut alone = state.arrival;
        self.quota.put_back(&mut alone, now, state.loans.total());
        let after = self.owing.assess(&alone, now, 0);
        let answer = Assessment {
            remaining: answer.remaining.saturating_sub(lent),
            reset_after: after.reset_after,
            ..answer
        };
        (answer, lot)
    }

    /// Brings a state up to `now`: holds back from the burst what was parked, for as long as it was, and forgets lots
    /// that have run out.
    ///
    /// Whatever reads or writes the state does this first, leased or not.
    pub fn settle(&self, state: &mut BucketState, now: Tick) {
        let loans = &mut state.loans;
        if loans.total() == 0 {
            *loans = Loans::default();
            return;
        }
        let generation = now / self.terms.parking_life();
        if loans.generation > generation.saturating_add(AHEAD) {
            // The clock went back by far. No lot lives longer than a life from now.
            loans.current = loans.total();
            (loans.generation, loans.previous) = (generation, 0);
        }
        let next = self.starts(loans.generation + 1);
        self.quota
            .hold_back(&mut state.arrival, now.min(next), loans.total());
        if now < next {
            return;
        }
        (loans.previous, loans.current) = (loans.current, 0);
        loans.generation += 1;
        let over = self.starts(loans.generation + 1);
        self.quota
            .hold_back(&mut state.arrival, now.min(over), loans.previous);
        if now >= over {
            *loans = Loans::default();
        }
    }

    /// Until when the state has to be kept: from then on it equals a fresh one.
    #[must_use]
    pub fn fresh_at(&self, state: &BucketState) -> Tick {
        let mut last = *state;
        if state.loans.total() > 0 {
            // As it will be when all lots have run out and nobody came. What was parked until then has yet to come back.
            let over = state.loans.generation.saturating_add(2);
            self.settle(&mut last, self.starts(over));
        }
        self.quota.fresh_at(&last.arrival)
    }

    pub(super) fn starts(&self, generation: u64) -> Tick {
        generation.saturating_mul(self.terms.parking_life())
    }

    /// A lot that comes back. Units go back only of a lot that is still tracked: of one that is not, the bucket has
    /// filled up since as if they had been spent.
    fn close(&self, state: &mut BucketState, now: Tick, closed: Closed) {
        let loans = &mut state.loans;
        let tracked = match loans.generation.checked_sub(closed.generation) {
            Some(0) => &mut loans.current,
            Some(1) => &mut loans.previous,
            _ => return,
        };
        if *tracked < closed.size || closed.size < closed.left {
            return;
        }
        *tracked -= closed.size;
        self.quota.put_back(&mut state.arrival, now, closed.left);
    }

    fn lend(
        &self,
        state: &mut BucketState,
        now: Tick,
        answer: &Assessment,
        ask: &Ask,
    ) -> Option<Lot> {
        let level = answer.remaining;
        if answer.fits {
            let room = self.terms.reserve().saturating_sub(state.loans.total());
            let units = self.terms.lot(ask.parking, level, room);
            if units > 0 {
                // What is parked already is of the same, for the state was settled; or of a later one, if the clock went back.
                let generation = (now / self.terms.parking_life()).max(state.loans.generation);
                state.loans.generation = generation;
                state.loans.current += units;
                self.quota.take(&mut state.arrival, now, units);
                return Some(Lot::Parking { units, generation });
            }
            let units = self.terms.lot(ask.transit, level, u64::MAX);
            if units > 0 && level <= self.terms.transit_below() {
                self.quota.take(&mut state.arrival, now, units);
                return Some(Lot::Transit { units });
            }
        }
        if answer.retry == Retry::Never {
            return None;
        }
        self.lend_ahead(state, now, level, ask)
    }

    /// A segment, where the bucket has nothing to lend.
    fn lend_ahead(&self, state: &mut BucketState, now: Tick, level: u64, ask: &Ask) -> Option<Lot> {
        let terms = self.terms.segments()?;
        let after = self.owing.time(&state.arrival, now);
        let units = terms.units(ask.segment, after);
        let is_empty = self.terms.lot(u64::MAX, level, u64::MAX) == 0;
        if units == 0 || !is_empty || level > terms.below() {
            return None;
        }
        self.quota.take(&mut state.arrival, now, units);
        Some(Lot::Segment { units, after })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::lease::segments::SegmentTerms;

    const LIFE: Tick = 1_000;

    /// A burst of 100 units, one a µs; lots of up to 20 units, two of which may be parked.
    fn lender() -> BucketLender {
        let quota = Quota::token_bucket(100).refill(1, Duration::from_micros(1));
        let terms = LeaseTerms::of_bucket(40, LIFE, 100, 10).in_lots_of(2, 1);
        BucketLender::new(&quota, terms).expect("a bucket")
    }

    fn park(closed: Option<Closed>) -> Ask {
        Ask {
            closed,
            parking: 20,
            transit: 20,
            segment: 0,
        }
    }

    fn left(lender: &BucketLender, state: &mut BucketState, now: Tick) -> u64 {
        lender.acquire(state, now, 0, &Ask::default()).0.remaining
    }

    #[test]
    fn a_bucket_fills_up_to_what_is_not_parked() {
        let (lender, mut state) = (lender(), BucketState::default());
        let (answer, lot) = lender.acquire(&mut state, 5_000, 1, &park(None));
        let generation = 5;
        assert_eq!(
            lot,
            Some(Lot::Parking {
                units: 20,
                generation
            })
        );
        assert_eq!(answer.remaining, 79);
        assert_eq!(left(&lender, &mut state, 5_999), 80);
        assert_eq!(left(&lender, &mut state, 7_000), 80);
        assert_eq!(left(&lender, &mut state, 7_010), 90);
    }

    #[test]
    fn what_comes_back_is_there_for_the_request() {
        let (lender, mut state) = (lender(), BucketState::default());
        lender.acquire(&mut state, 5_000, 1, &park(None));
        let closed = Some(Closed {
            size: 20,
            left: 15,
            generation: 5,
        });
        let ask = Ask {
            closed,
            ..Ask::default()
        };
        let (answer, lot) = lender.acquire(&mut state, 5_500, 95, &ask);
        assert_eq!((answer.fits, answer.remaining, lot), (true, 0, None));
        assert_eq!(state.loans.total(), 0);
    }

    #[test]
    fn a_lot_that_is_not_tracked_brings_nothing_back() {
        let (lender, mut state) = (lender(), BucketState::default());
        lender.acquire(&mut state, 5_000, 100, &Ask::default());
        for generation in [0, 4, 5, 6, u64::MAX] {
            let closed = Some(Closed {
                size: 20,
                left: 20,
                generation,
            });
            let ask = Ask {
                closed,
                ..Ask::default()
            };
            assert!(!lender.acquire(&mut state, 5_000, 1, &ask).0.fits);
        }
    }

    #[test]
    fn no_more_is_parked_than_the_reserve() {
        let (lender, mut state) = (lender(), BucketState::default());
        for now in 5_000..5_400 {
            lender.acquire(&mut state, now, 1, &park(None));
            assert!(state.loans.total() <= 40);
        }
        assert_eq!(state.loans.total(), 40);
    }

    #[test]
    fn a_denied_request_gets_no_lot() {
        let (lender, mut state) = (lender(), BucketState::default());
        lender.acquire(&mut state, 5_000, 95, &Ask::default());
        let (answer, lot) = lender.acquire(&mut state, 5_000, 6, &park(None));
        assert_eq!((answer.fits, answer.remaining, lot), (false, 5, None));
    }

    #[test]
    fn a_lot_in_transit_needs_a_bucket_that_is_nearly_empty() {
        let (lender, mut state) = (lender(), BucketState::default());
        let ask = Ask {
            transit: 20,
            ..Ask::default()
        };
        assert_eq!(lender.acquire(&mut state, 5_000, 89, &ask).1, None);
        let (answer, lot) = lender.acquire(&mut state, 5_000, 1, &ask);
        assert_eq!(
            (answer.remaining, lot),
            (5, Some(Lot::Transit { units: 5 }))
        );
        assert_eq!(state.loans, Loans::default());
    }

    #[test]
    fn a_lot_from_before_a_step_back_is_not_taken_for_a_later_one() {
        let (lender, mut state) = (lender(), BucketState::default());
        let ask = Ask {
            parking: 10,
            ..Ask::default()
        };
        let (_, lot) = lender.acquire(&mut state, 5_000, 1, &ask);
        let Some(Lot::Parking { units, generation }) = lot else {
            panic!("{lot:?}");
        };
        // Back over the turn of a generation, and on.
        lender.acquire(&mut state, 4_999, 1, &Ask::default());
        let (_, later) = lender.acquire(&mut state, 5_900, 1, &park(None));
        let later = later.expect("some of the reserve is there").units();
        let closed = Some(Closed {
            size: units,
            left: units,
            generation,
        });
        let ask = Ask {
            closed,
            ..Ask::default()
        };
        lender.acquire(&mut state, 5_950, 1, &ask);
        // The later lot lives on.
        assert!(left(&lender, &mut state, 6_800) <= 100 - later);
    }

    #[test]
    fn a_state_is_fresh_a_tick_after_the_last_unit_came_back() {
        let (lender, mut state) = (lender(), BucketState::default());
        lender.acquire(&mut state, 5_000, 1, &park(None));
        assert_eq!(lender.fresh_at(&state), 7_000 + 20);
        lender.acquire(&mut state, 6_500, 1, &Ask::default());
        assert_eq!(lender.fresh_at(&state), 7_000 + 20);
        lender.acquire(&mut state, 7_000, 50, &Ask::default());
        assert_eq!(lender.fresh_at(&state), 7_000 + 70);
    }

    /// A bucket of 100 units, one a µs, of which up to 30 are lent ahead.
    fn ahead() -> BucketLender {
        let quota = Quota::token_bucket(100).refill(1, Duration::from_micros(1));
        let segments = SegmentTerms::by_hand(1, 1, 100, 30, 50);
        let terms = LeaseTerms::of_bucket(0, LIFE, 0, 0).with_segments(segments);
        BucketLender::new(&quota, terms).expect("a bucket")
    }

    fn segment(units: u64) -> Ask {
        Ask {
            segment: units,
            ..Ask::default()
        }
    }

    fn lent(units: u64, after: Tick) -> Option<Lot> {
        Some(Lot::Segment { units, after })
    }

    #[test]
    fn a_segment_is_lent_to_who_has_emptied_the_bucket_and_to_who_is_refused() {
        let (lender, mut state) = (ahead(), BucketState::default());
        let (answer, lot) = lender.acquire(&mut state, 5_000, 98, &segment(15));
        assert_eq!((answer.fits, lot), (true, lent(15, 0)));
        // Two units were left, and fifteen lent: thirteen are owed, for which another one waits.
        let (answer, lot) = lender.acquire(&mut state, 5_000, 3, &segment(99));
        assert_eq!((answer.fits, lot), (false, lent(17, 13)));
        assert_eq!(answer.retry, Retry::after_micros(16));
        assert_eq!(answer.reset_after, 130);
        // Thirty are owed, and the line is full.
        let (answer, lot) = lender.acquire(&mut state, 5_000, 1, &segment(1));
        assert_eq!((answer.retry, lot), (Retry::after_micros(31), None));
        assert_eq!(
            lender.acquire(&mut state, 5_013, 1, &segment(1)).1,
            lent(1, 17)
        );
        // What is owed comes back, and then the bucket fills up as ever.
        assert!(!lender.acquire(&mut state, 5_031, 1, &segment(0)).0.fits);
        assert_eq!(left(&lender, &mut state, 5_032), 1);
        assert_eq!(left(&lender, &mut state, 5_041), 10);
        assert_eq!(lender.fresh_at(&state), 5_131);
    }

    #[test]
    fn while_the_bucket_has_something_no_segment_is_lent() {
        let (lender, mut state) = (ahead(), BucketState::default());
        assert_eq!(lender.acquire(&mut state, 5_000, 92, &segment(15)).1, None);
        assert_eq!(lender.acquire(&mut state, 5_000, 9, &segment(15)).1, None);
        assert_eq!(lender.acquire(&mut state, 5_000, 101, &segment(15)).1, None);
        assert_eq!(
            lender.acquire(&mut state, 5_000, 1, &segment(15)).1,
            lent(15, 0)
        );
    }

    #[test]
    fn what_is_owed_stays_owed_when_the_clock_goes_back() {
        let (lender, mut state) = (ahead(), BucketState::default());
        lender.acquire(&mut state, 5_000, 100, &segment(15));
        let (answer, _) = lender.acquire(&mut state, 4_000, 1, &segment(0));
        assert_eq!(
            (answer.fits, answer.retry),
            (false, Retry::after_micros(16))
        );
        assert_eq!(answer.reset_after, 115);
        assert!(!lender.acquire(&mut state, 4_015, 1, &segment(0)).0.fits);
        assert!(lender.acquire(&mut state, 4_016, 1, &segment(0)).0.fits);
    }
}
