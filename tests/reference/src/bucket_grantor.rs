//! The store's side of leases, for buckets.

use tollgate_core::{
    Quota, Retry, Tick,
    algorithm::{Algorithm, Assessment, Gcra, GcraState, Taken},
};
use tollgate_prefilter::{Grant, LeaseQuery, LeaseTerms, ReturnedLease};

use crate::{lease_size::LeaseSize, overdraft::Overdraft};

/// Grants leases of a token bucket, a GCRA or a leaky bucket.
///
/// The script of a store is held to this one.
///
/// # Accuracy
///
/// All processes together never admit more than the burst and what comes back, as if each request had queried the store, while the
/// store's clock runs like theirs to a thousandth.
///
/// **If the store's clock goes back**, no more requests pass than if it had not, and no more units are on lease than the reserve.
/// Units that were on lease stay so for up to five lives of a lease. One exception: a lease may count twice if a query returned it
/// before the step and arrives more than a life of a lease after it.
///
/// **If it goes forward**, the bucket refills by at most a burst, as under `Exact`. The grantor also forgets leases that processes
/// still hold. They are spent in addition, once: at most the reserve and the scheduled leases above the limit.
#[derive(Clone, Copy, Debug)]
pub struct BucketGrantor {
    quota: Gcra,
    overdraft: Overdraft,
    terms: LeaseTerms,
    /// How large leases are.
    pub size: LeaseSize,
}

/// What the store keeps of a key: the arrival time, and what is on lease. The default is fresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketState {
    /// The arrival time. What is granted is taken from it.
    pub arrival: GcraState,
    /// What is on lease.
    pub leases: TrackedLeases,
    /// How far the bucket is behind as of the last query, in µs beyond the time that an empty bucket takes to fill up: for scheduled
    /// leases that were granted and have not come back.
    pub owed: Tick,
}

/// Units in tracked leases, in two generations of the length of a lease's life.
///
/// A lease of generation `g` is granted in `[g·life, (g+1)·life)` and has run out before `(g+2)·life`. A lease counts with its
/// whole size until it is returned or its generation is over, whatever was spent of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrackedLeases {
    /// The number of the current generation.
    pub generation: u64,
    /// Units granted in the current generation.
    pub current: u64,
    /// Units granted in the one before.
    pub previous: u64,
}

/// A clock that goes back by up to three generations leaves their number as it is. Numbered anew, a lease from before
/// the step would be taken for one that is granted when its number comes again, and that one forgotten too early. By more than
/// these, the leases from before have run out by then.
const AHEAD: u64 = 3;

impl TrackedLeases {
    /// All units that are on lease.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.current.saturating_add(self.previous)
    }
}

impl BucketGrantor {
    /// A grantor of a quota. `None` if it is not a bucket, or not valid, or if the terms are those of a window.
    #[must_use]
    pub fn new(quota: &Quota, terms: LeaseTerms) -> Option<Self> {
        let bucket = Gcra::new(quota).filter(|_| terms.window.is_none())?;
        Some(Self {
            quota: bucket,
            overdraft: Overdraft::new(quota, bucket),
            terms,
            size: LeaseSize::default(),
        })
    }

    /// Decides about `cost` units, takes them if they fit, and grants.
    ///
    /// The order matters: the burst is cut by what is on lease before anything is returned; what is returned is there
    /// for the request; and what the bucket has is granted only where the request was granted. A scheduled lease is of units that the
    /// bucket does not have yet. It is granted also where the request was refused, because such a process waits for them.
    pub fn acquire(
        &self,
        state: &mut BucketState,
        now: Tick,
        cost: u64,
        query: &LeaseQuery,
    ) -> (Assessment, Option<Grant>) {
        self.settle(state, now);
        if let Some(returned) = query.returned {
            self.take_back(state, now, returned);
        }
        let mut arrival = state.arrival;
        self.overdraft.repair(&mut arrival, now, state.owed);
        let mut answer = self.overdraft.assess(&arrival, now, cost);
        if cost > 0 {
            state.arrival = arrival;
        }
        if answer.fits {
            self.quota.take(&mut state.arrival, now, cost);
        }
        if answer.retry != Retry::Now {
            answer.retry = self.retry(state, now, cost.max(1));
        }
        let grant = self.grant(state, now, &answer, query);
        state.owed = self.overdraft.time(&state.arrival, now);
        if !answer.fits && grant.is_none() {
            return (answer, grant);
        }
        let granted = grant.map_or(0, |grant| grant.units());
        // What is on lease comes back by itself. If it were included, a refund would give back what time has.
        let mut alone = state.arrival;
        put_back(&self.quota, &mut alone, now, state.leases.total());
        let after = self.overdraft.assess(&alone, now, 0);
        let remaining = answer.remaining.saturating_sub(granted);
        let answer = Assessment::new(answer.fits, remaining, after.reset_after, answer.retry);
        (answer, grant)
    }

    /// Forgets the used units, but not the units on lease: they may still be spent, so they are held back from the burst until they are
    /// returned or expire. Scheduled leases are not tracked, and are spent in addition.
    pub fn reset(&self, state: &mut BucketState, now: Tick) {
        self.settle(state, now);
        (state.arrival, state.owed) = (GcraState::default(), 0);
        let arrival = &mut state.arrival;
        hold_back(&self.quota, arrival, now, state.leases.total());
    }

    /// Brings a state up to `now`: holds back from the burst what was on lease, for as long as it was, and forgets leases
    /// that have run out.
    ///
    /// Whatever reads or writes the state does this first, leased or not.
    pub fn settle(&self, state: &mut BucketState, now: Tick) {
        let leases = &mut state.leases;
        if leases.total() == 0 {
            *leases = TrackedLeases::default();
            return;
        }
        let generation = now / self.terms.tracked_life;
        if leases.generation > generation.saturating_add(AHEAD) {
            // The clock went back by far. No lease lives longer than a life from now.
            leases.current = leases.total();
            (leases.generation, leases.previous) = (generation, 0);
        }
        let next = self.starts(leases.generation + 1);
        let arrival = &mut state.arrival;
        hold_back(&self.quota, arrival, now.min(next), leases.total());
        if now < next {
            return;
        }
        (leases.previous, leases.current) = (leases.current, 0);
        leases.generation += 1;
        let over = self.starts(leases.generation + 1);
        hold_back(&self.quota, arrival, now.min(over), leases.previous);
        if now >= over {
            *leases = TrackedLeases::default();
        }
    }

    /// Until when the state has to be kept: from then on it equals a fresh one.
    #[must_use]
    pub fn fresh_at(&self, state: &BucketState) -> Tick {
        let mut last = *state;
        if state.leases.total() > 0 {
            // As it will be when all leases have run out unused. What was on lease until then has yet to be refilled.
            let over = state.leases.generation.saturating_add(2);
            self.settle(&mut last, self.starts(over));
        }
        self.quota.fresh_at(&last.arrival)
    }

    fn starts(&self, generation: u64) -> Tick {
        generation.saturating_mul(self.terms.tracked_life)
    }

    /// When `cost` units fit that do not fit `now`, to the tick, if nothing else is taken, granted or returned.
    ///
    /// What is on lease is held back until its generation is over, and only then does time bring it back: no cost fits before
    /// that does not fit as well.
    fn retry(&self, state: &BucketState, now: Tick, cost: u64) -> Retry {
        let generation = state.leases.generation;
        let starts = [1, 2].map(|next| self.starts(generation.saturating_add(next)));
        let mut retry = Retry::Now;
        for at in [now].into_iter().chain(starts) {
            let mut then = *state;
            self.settle(&mut then, at);
            let answer = self.overdraft.assess(&then.arrival, at, cost);
            let wait = match answer.retry {
                _ if answer.fits => 0,
                Retry::Now => 0,
                Retry::After(wait) => u64::try_from(wait.as_micros()).unwrap_or(u64::MAX),
                never => return never,
            };
            // No sooner, as long as time alone passes. Later if what is on lease has kept it from that.
            let fits_at = at.saturating_add(wait);
            retry = Retry::after_micros(fits_at.saturating_sub(now));
            self.settle(&mut then, fits_at);
            if self.overdraft.assess(&then.arrival, fits_at, cost).fits {
                break;
            }
        }
        retry
    }

    /// A lease that comes back. Units go back only of a lease that is still tracked: of one that is not, the bucket has
    /// filled up since as if they had been spent.
    fn take_back(&self, state: &mut BucketState, now: Tick, returned: ReturnedLease) {
        let leases = &mut state.leases;
        let tracked = match leases.generation.checked_sub(returned.generation) {
            Some(0) => &mut leases.current,
            Some(1) => &mut leases.previous,
            _ => return,
        };
        if *tracked < returned.size || returned.size < returned.left {
            return;
        }
        *tracked -= returned.size;
        put_back(&self.quota, &mut state.arrival, now, returned.left);
    }

    fn grant(
        &self,
        state: &mut BucketState,
        now: Tick,
        answer: &Assessment,
        query: &LeaseQuery,
    ) -> Option<Grant> {
        let level = answer.remaining;
        if answer.fits {
            let room = self.terms.reserve.saturating_sub(state.leases.total());
            let units = self.size.units(query.tracked, level, room);
            if units > 0 {
                // What is on lease already is of the same, for the state was settled; or of a later one, if the clock went back.
                let generation = (now / self.terms.tracked_life).max(state.leases.generation);
                state.leases.generation = generation;
                state.leases.current += units;
                self.quota.take(&mut state.arrival, now, units);
                return Some(Grant::Tracked { units, generation });
            }
        }
        if answer.retry == Retry::Never {
            return None;
        }
        self.schedule(state, now, level, query)
    }

    /// A scheduled lease, where the bucket has nothing to grant.
    fn schedule(
        &self,
        state: &mut BucketState,
        now: Tick,
        level: u64,
        query: &LeaseQuery,
    ) -> Option<Grant> {
        let terms = self.terms.schedule?;
        let after = self.overdraft.time(&state.arrival, now);
        let units = terms.units(query.scheduled, after);
        let is_empty = self.size.units(u64::MAX, level, u64::MAX) == 0;
        if units == 0 || !is_empty || level > terms.below {
            return None;
        }
        self.quota.take(&mut state.arrival, now, units);
        Some(Grant::Scheduled { units, after })
    }
}

/// Leaves no more than the burst less `units` at `at`: for units that are out of the bucket and may come back. `units` above the burst
/// are the burst.
pub(crate) fn hold_back(quota: &Gcra, state: &mut GcraState, at: Tick, units: u64) {
    let mut held = GcraState::default();
    let burst = quota.assess(&held, at, 0).remaining;
    quota.take(&mut held, at, units.min(burst));
    if (held.tat, held.rest) > (state.tat, state.rest) {
        *state = held;
    }
}

/// Puts `units` back into the bucket, up to the burst, also what would have refilled since: the caller knows that nothing has, for they
/// were held back.
pub fn put_back(quota: &Gcra, state: &mut GcraState, now: Tick, units: u64) {
    quota.refund(state, now, Taken::new(now, Tick::MAX), units);
}
