//! The store's side of leases, for buckets.

use tollgate_core::{
    Quota, Tick,
    algorithm::{Algorithm, Arrival, ArrivalState, Assessment},
};

use crate::lease::{
    lot::{Ask, Closed, Lot},
    terms::LeaseTerms,
};

/// Lends units of a token bucket, a GCRA or a leaky bucket.
///
/// A store that does the same in another language is held to this one.
#[derive(Clone, Copy, Debug)]
pub struct BucketLender {
    quota: Arrival,
    terms: LeaseTerms,
}

/// What the store keeps of a key: the arrival time, and what is parked. The default is fresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketState {
    /// The arrival time. What is lent is taken from it.
    pub arrival: ArrivalState,
    /// What is parked.
    pub loans: Loans,
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

impl Loans {
    /// All units that are parked.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.current.saturating_add(self.previous)
    }
}

impl BucketLender {
    /// A lender of a quota. `None` if it is not a bucket, or not valid.
    #[must_use]
    pub fn new(quota: &Quota, terms: LeaseTerms) -> Option<Self> {
        let quota = Arrival::new(quota)?;
        Some(Self { quota, terms })
    }

    /// Decides about `cost` units, takes them if they fit, and lends.
    ///
    /// The order matters: the burst is cut by what is parked before anything is handed back; what is handed back is there
    /// for the request; and a lot is lent only where the request was granted.
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
        let answer = self.quota.acquire(&mut state.arrival, now, cost);
        if !answer.fits {
            self.quota.repair(&mut state.arrival, now);
            return (answer, None);
        }
        let lot = self.lend(state, now, answer.remaining, ask);
        let lent = lot.map_or(0, |lot| lot.units());
        let after = self.quota.assess(&state.arrival, now, 0);
        let answer = Assessment {
            remaining: answer.remaining - lent,
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
        if loans.generation > generation {
            // The clock went back. No lot lives longer than a life from now.
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
        // As it will be when all lots have run out and nobody came.
        let over = match state.loans.total() {
            0 => 0,
            _ => self.starts(state.loans.generation + 2),
        };
        self.settle(&mut last, over);
        self.quota.fresh_at(&last.arrival).max(over)
    }

    fn starts(&self, generation: u64) -> Tick {
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

    fn lend(&self, state: &mut BucketState, now: Tick, level: u64, ask: &Ask) -> Option<Lot> {
        let room = self.terms.reserve().saturating_sub(state.loans.total());
        let units = self.terms.lot(ask.parking, level, room);
        if units > 0 {
            let generation = now / self.terms.parking_life();
            // The generation of what is parked already is the same: the state was settled.
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
        None
    }
}
