//! The virtual store.

use std::collections::HashMap;

use tollgate_core::{
    Tick,
    algorithm::{Algorithm, Assessment, FixedWindow, Gcra, SlidingWindow, Taken},
};
use tollgate_prefilter::{
    Ask, BucketLender, BucketState, LeaseTerms, Lot, WindowLender, WindowState,
};

use crate::{
    agent::{Answer, Question},
    consistency::Terms,
};

/// One state for each key. It decides in no time, and one question after the other.
#[derive(Debug)]
pub(crate) enum Server {
    Buckets(Box<Buckets>),
    Fixed(Windows<FixedWindow>),
    Sliding(Windows<SlidingWindow>),
}

#[derive(Debug)]
pub(crate) struct Buckets {
    arrival: Gcra,
    lender: Option<BucketLender>,
    states: HashMap<u32, BucketState>,
}

#[derive(Debug)]
pub(crate) struct Windows<A: Algorithm> {
    quota: A,
    lender: WindowLender<A>,
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
            lender: terms
                .lease
                .and_then(|lease| BucketLender::new(&terms.quota, lease)),
            states: HashMap::new(),
        })))
    }

    pub(crate) fn decide(
        &mut self,
        key: u32,
        now: Tick,
        question: &Question,
        terms: &Terms,
    ) -> Answer {
        let (mut cost, mut ask) = (question.cost, question.ask);
        if question.is_denied {
            // Another rule has the last word: what comes back has come back, and that is all.
            (cost, ask) = (
                0,
                Ask {
                    closed: ask.closed,
                    ..Ask::default()
                },
            );
        }
        let (assessment, lot) = match self {
            Self::Buckets(one) => one.decide(key, now, cost, &ask, (question.report, terms)),
            Self::Fixed(one) => one.decide(key, now, cost, &ask, question.refund),
            Self::Sliding(one) => one.decide(key, now, cost, &ask, question.refund),
        };
        Answer {
            assessment,
            lot,
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
        ask: &Ask,
        (mut report, terms): (u64, &Terms),
    ) -> (Assessment, Option<Lot>) {
        let state = self.states.entry(key).or_default();
        let arrival = &self.arrival;
        match &self.lender {
            Some(lender) => lender.acquire(state, now, cost, ask),
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
        // Where nothing is lent, nothing is asked for.
        let lease = terms.lease.unwrap_or(LeaseTerms::of_window(0, length));
        Some(Self {
            quota,
            lender: WindowLender::new(A::new(&terms.quota)?, &lease)?,
            length,
            states: HashMap::new(),
        })
    }

    fn decide(
        &mut self,
        key: u32,
        now: Tick,
        cost: u64,
        ask: &Ask,
        refund: Option<(u64, u64)>,
    ) -> (Assessment, Option<Lot>) {
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
        self.lender.acquire(state, now, cost, ask)
    }
}
