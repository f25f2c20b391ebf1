//! The store's side of leases, for buckets.

use tollgate_core::{
    Quota, Retry, Tick,
    algorithm::{Algorithm, Assessment, Gcra, GcraState},
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
/// the reserve and what is lent ahead comes on top.
#[derive(Clone, Copy, Debug)]
pub struct BucketLender {
    pub(super) quota: Gcra,
    pub(super) owing: Owing,
    terms: LeaseTerms,
}

/// What the store keeps of a key: the arrival time, and what is parked. The default is fresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketState {
    /// The arrival time. What is lent is taken from it.
    pub arrival: GcraState,
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
        let bucket = Gcra::new(quota).filter(|_| terms.window().is_none())?;
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
        }
        if answer.retry != Retry::Now {
            answer.retry = self.retry(state, now, cost.max(1));
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
mod tests;
