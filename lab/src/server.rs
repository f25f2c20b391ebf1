//! The virtual store.

use std::collections::HashMap;

use tollgate_core::{
    Tick,
    algorithm::{Algorithm, Assessment, FixedWindow, Gcra, SlidingWindow, Taken},
};
use tollgate_prefilter::{
    BucketGrantor, BucketState, Grant, LeaseQuery, LeaseTerms, WindowGrantor, WindowState,
};

use crate::{
    agent::{Answer, InFlightQuery},
    consistency::Terms,
};

/// One state for each key. It decides in no time, and one query after the other.
#[derive(Debug)]
pub(crate) enum Server {
    Buckets(Box<Buckets>),
    Fixed(Windows<FixedWindow>),
    Sliding(Windows<SlidingWindow>),
}

#[derive(Debug)]
pub(crate) struct Buckets {
    arrival: Gcra,
    grantor: Option<BucketGrantor>,
    states: HashMap<u32, BucketState>,
}

#[derive(Debug)]
pub(crate) struct Windows<A: Algorithm> {
    quota: A,
    grantor: WindowGrantor<A>,
    length: Tick,
    states: HashMap<u32, WindowState<A::State>>,
}

impl Server {
    /// `None` if the quota is neither a bucket nor a window of counters.
    pub(crate) fn new(terms: &Terms) -> Option<Self> {
        if let Some(windows) = Windows::new(terms) {
            return Some(Self::Fixed(windows));
        }
        if let Some(windows) = Windows::new(terms) {
            return Some(Self::Sliding(windows));
        }
        Some(Self::Buckets(Box::new(Buckets {
            arrival: terms.arrival?,
            grantor: terms
                .lease
                .and_then(|lease| BucketGrantor::new(&terms.quota, lease)),
            states: HashMap::new(),
        })))
    }

    pub(crate) fn decide(
        &mut self,
        key: u32,
        now: Tick,
        query: &InFlightQuery,
        terms: &Terms,
    ) -> Answer {
        let (mut cost, mut lease) = (query.cost, query.query);
        if query.is_denied {
            // Another rule has the last word: what comes back has come back, and that is all.
            (cost, lease) = (
                0,
                LeaseQuery {
                    returned: lease.returned,
                    ..LeaseQuery::default()
                },
            );
        }
        let (assessment, grant) = match self {
            Self::Buckets(one) => one.decide(key, now, cost, &lease, (query.report, terms)),
            Self::Fixed(one) => one.decide(key, now, cost, &lease, query.refund),
            Self::Sliding(one) => one.decide(key, now, cost, &lease, query.refund),
        };
        Answer {
            assessment,
            grant,
            at: now,
        }
    }
}

impl Buckets {
    fn decide(
        &mut self,
        key: u32,
        now: Tick,
        cost: u64,
        query: &LeaseQuery,
        (mut report, terms): (u64, &Terms),
    ) -> (Assessment, Option<Grant>) {
        let state = self.states.entry(key).or_default();
        let arrival = &self.arrival;
        match &self.grantor {
            Some(grantor) => grantor.acquire(state, now, cost, query),
            // A debt is kept, and never repaired on a denial: what was reported above the limit has to be paid back.
            None => {
                arrival.hold_back(&mut state.arrival, now, terms.held_back);
                while report > 0 {
                    let some = report.min(terms.quota.limit());
                    arrival.take(&mut state.arrival, now, some);
                    report -= some;
                }
                (arrival.acquire(&mut state.arrival, now, cost), None)
            }
        }
    }
}

impl<A: Algorithm> Windows<A> {
    /// `None`: the quota is another.
    fn new(terms: &Terms) -> Option<Self> {
        let quota = A::new(&terms.quota)?;
        let length = u64::try_from(terms.quota.period().as_micros()).ok()?;
        // Where nothing is granted, nothing is asked for.
        let lease = terms.lease.unwrap_or(LeaseTerms::of_window(0, length));
        Some(Self {
            quota,
            grantor: WindowGrantor::new(A::new(&terms.quota)?, &lease)?,
            length,
            states: HashMap::new(),
        })
    }

    fn decide(
        &mut self,
        key: u32,
        now: Tick,
        cost: u64,
        query: &LeaseQuery,
        refund: Option<(u64, u64)>,
    ) -> (Assessment, Option<Grant>) {
        let state = self.states.entry(key).or_default();
        if let Some((window, units)) = refund {
            // As it was when they were taken in that window.
            let mut then = A::State::default();
            self.quota.take(&mut then, window * self.length, units);
            let taken = Taken {
                at: now,
                fresh_at: self.quota.fresh_at(&then),
            };
            self.quota.refund(&mut state.counts, now, taken, units);
        }
        self.grantor.acquire(state, now, cost, query)
    }
}
