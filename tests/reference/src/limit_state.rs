//! The state of a limit with its grantor, whichever quota it has.

use tollgate_core::{
    Quota, Tick,
    algorithm::{
        Algorithm, Assessment, FixedWindow, FixedWindowState, Gcra, SlidingWindow,
        SlidingWindowState, Taken,
    },
};
use tollgate_prefilter::{Grant, LeaseQuery, LeaseTerms};

use crate::{BucketGrantor, BucketState, WindowGrantor, WindowState, lease_terms};

/// What a store keeps of one key of a rule.
#[derive(Clone, Debug)]
pub enum LimitState {
    /// Of a bucket.
    Bucket(Box<BucketLimit>),
    /// Of a fixed window.
    Fixed(WindowLimit<FixedWindow>),
    /// Of a sliding window of two counters.
    Sliding(WindowLimit<SlidingWindow>),
}

/// A bucket.
#[derive(Clone, Debug)]
pub struct BucketLimit {
    quota: Gcra,
    grantor: Option<BucketGrantor>,
    state: BucketState,
}

/// A window.
#[derive(Clone, Debug)]
pub struct WindowLimit<A: Algorithm> {
    grantor: WindowGrantor<A>,
    state: WindowState<A::State>,
}

impl LimitState {
    /// A fresh one; without terms nothing is granted. `None` if the quota is neither a bucket nor a window of counters, or the terms
    /// are not those of one.
    #[must_use]
    pub fn new(quota: &Quota, terms: Option<LeaseTerms>) -> Option<Self> {
        if let Some(bucket) = Gcra::new(quota) {
            return Some(Self::Bucket(Box::new(BucketLimit {
                quota: bucket,
                grantor: match terms {
                    Some(terms) => Some(BucketGrantor::new(quota, terms)?),
                    None => None,
                },
                state: BucketState::default(),
            })));
        }
        let terms = terms.unwrap_or(LeaseTerms {
            window: u64::try_from(quota.period().as_micros()).ok(),
            ..lease_terms(0, 1)
        });
        let fixed = WindowLimit::new(quota, &terms).map(Self::Fixed);
        fixed.or_else(|| WindowLimit::new(quota, &terms).map(Self::Sliding))
    }

    /// Decides about `cost` units, takes them if they fit, and grants.
    pub fn acquire(
        &mut self,
        now: Tick,
        cost: u64,
        query: &LeaseQuery,
    ) -> (Assessment, Option<Grant>) {
        match self {
            Self::Bucket(it) => match &it.grantor {
                Some(grantor) => grantor.acquire(&mut it.state, now, cost, query),
                // A debt is kept, and never repaired on a denial: what was reported above the limit has to be paid back.
                None => (it.quota.acquire(&mut it.state.arrival, now, cost), None),
            },
            Self::Fixed(it) => it.grantor.acquire(&mut it.state, now, cost, query),
            Self::Sliding(it) => it.grantor.acquire(&mut it.state, now, cost, query),
        }
    }

    /// Takes units, whether they are left or not.
    pub fn take(&mut self, now: Tick, units: u64) {
        match self {
            Self::Bucket(it) => it.quota.take(&mut it.state.arrival, now, units),
            Self::Fixed(it) => it.grantor.quota.take(&mut it.state.counts, now, units),
            Self::Sliding(it) => it.grantor.quota.take(&mut it.state.counts, now, units),
        }
    }

    /// Gives back units that a request has taken.
    pub fn refund(&mut self, now: Tick, taken: Taken, units: u64) {
        match self {
            Self::Bucket(it) => it.quota.refund(&mut it.state.arrival, now, taken, units),
            Self::Fixed(it) => it.refund(now, taken, units),
            Self::Sliding(it) => it.refund(now, taken, units),
        }
    }

    /// Forgets what was used, and not what is on lease.
    pub fn reset(&mut self, now: Tick) {
        match self {
            Self::Bucket(it) => match &it.grantor {
                Some(grantor) => grantor.reset(&mut it.state, now),
                None => it.state = BucketState::default(),
            },
            Self::Fixed(it) => it.grantor.reset(&mut it.state, now),
            Self::Sliding(it) => it.grantor.reset(&mut it.state, now),
        }
    }

    /// From when on it need not be kept.
    #[must_use]
    pub fn fresh_at(&self) -> Tick {
        match self {
            Self::Bucket(it) => match &it.grantor {
                Some(grantor) => grantor.fresh_at(&it.state),
                None => it.quota.fresh_at(&it.state.arrival),
            },
            Self::Fixed(it) => it.grantor.quota.fresh_at(&it.state.counts),
            Self::Sliding(it) => it.grantor.quota.fresh_at(&it.state.counts),
        }
    }

    /// The units that are on lease.
    #[must_use]
    pub fn on_lease(&self) -> u64 {
        match self {
            Self::Bucket(it) => it.state.leases.total(),
            Self::Fixed(it) => it.state.granted,
            Self::Sliding(it) => it.state.granted,
        }
    }

    /// The units of a window, and of the one before where it slides, that are counted; 0 of a bucket.
    #[must_use]
    pub fn counted(&self, now: Tick) -> u64 {
        match self {
            Self::Bucket(_) => 0,
            Self::Fixed(it) => it.counted(now, FixedWindowState::used),
            Self::Sliding(it) => it.counted(now, SlidingWindowState::used),
        }
    }
}

impl<A: Algorithm> WindowLimit<A> {
    fn new(quota: &Quota, terms: &LeaseTerms) -> Option<Self> {
        Some(Self {
            grantor: WindowGrantor::new(A::new(quota)?, terms)?,
            state: WindowState::default(),
        })
    }

    fn refund(&mut self, now: Tick, taken: Taken, units: u64) {
        let counts = &mut self.state.counts;
        self.grantor.quota.refund(counts, now, taken, units);
    }

    fn counted(&self, now: Tick, used: impl Fn(&A::State) -> u64) -> u64 {
        let quota = &self.grantor.quota;
        let mut counts = self.state.counts.clone();
        let (before, left) = (used(&counts), quota.assess(&counts, now, 0));
        // A unit more: what is over is forgotten by who takes. A window that is full counts no more.
        quota.take(&mut counts, now, 1);
        match used(&counts) {
            after if after == before && left.remaining == 0 => before,
            after => after - 1,
        }
    }
}
