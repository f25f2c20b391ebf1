//! The virtual store.

use std::collections::HashMap;

use smallvec::SmallVec;
use tollgate_core::{
    Check, Decision, Retry, Source, Tick, Verdict,
    algorithm::{Algorithm, Assessment, FixedWindow, Gcra, SlidingWindow, Taken},
    store::{Fingerprint, Settlement},
};
use tollgate_prefilter::{
    Grant, GrantReply, IndexSet, LeaseItem, LeaseQuery, LeaseReply, LeaseTerms, Reply, ReportReply,
};
use tollgate_test_reference::{
    BucketGrantor, BucketState, WindowGrantor, WindowState, lease_terms,
};

use crate::{consistency::Terms, engine::Content};

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
    limit: u64,
    states: HashMap<Fingerprint, BucketState>,
}

#[derive(Debug)]
pub(crate) struct Windows<A: Algorithm> {
    quota: A,
    grantor: WindowGrantor<A>,
    states: HashMap<Fingerprint, WindowState<A::State>>,
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
            limit: terms.quota.limit(),
            states: HashMap::new(),
        })))
    }

    /// Carries out what the engine of a process sends, as one step. The reply, unless no process waits for it.
    pub(crate) fn carry_out(&mut self, now: Tick, content: &Content) -> Option<Reply> {
        let (checks, reports, leases) = match content {
            Content::Settle(receipt, how) => {
                let units = match how {
                    Settlement::Refund(units) => *units,
                    _ => receipt.check.cost(),
                };
                self.refund(receipt.check.key(), now, receipt.taken, units);
                return None;
            }
            Content::Query {
                checks,
                reports,
                leases,
            } => (checks, reports, leases),
        };
        for LeaseItem { check, query, .. } in leases {
            let back = LeaseQuery::default().with_returned(query.returned);
            self.acquire(check.key(), now, 0, &back);
        }
        let report = |report: &Check| {
            self.report(report.key(), now, report.cost());
            let nothing = LeaseQuery::default();
            let (answer, _) = self.acquire(report.key(), now, 0, &nothing);
            ReportReply::Counted {
                left: answer.remaining,
                reset_after: answer.reset_after,
            }
        };
        let reports: Vec<_> = reports.iter().map(report).collect();
        let is_denied = checks.iter().any(|check| check.rule() != 0);
        // What the other rule denies once it need not deny again.
        let mut shared = IndexSet::default();
        for (index, _) in checks.iter().enumerate().filter(|_| is_denied) {
            shared.insert(index);
        }
        let mut grant = None;
        let mut verdicts = SmallVec::<[Verdict; 2]>::new();
        for check in checks {
            if check.rule() != 0 {
                let denied = Assessment::new(false, 0, 0, Retry::Unknown);
                verdicts.push(Verdict::new(check.rule(), 0, denied, Source::Store));
                continue;
            }
            let wanted = leases.first().map(|item| item.query.with_returned(None));
            let (cost, wanted) = match is_denied {
                true => (0, LeaseQuery::default()),
                false => (check.cost(), wanted.unwrap_or_default()),
            };
            let (answer, granted) = self.acquire(check.key(), now, cost, &wanted);
            verdicts.push(Verdict::new(0, 0, answer, Source::Store));
            grant = granted;
        }
        let granted = grant.map_or(GrantReply::None, GrantReply::Granted);
        let mut reply = Reply::new(now, Decision::new(now, verdicts, |_| true));
        reply.shared = shared;
        let leases = leases.iter().map(|_| LeaseReply {
            is_refused: false,
            grant: granted,
        });
        (reply.reports, reply.leases) = (reports.into_iter().collect(), leases.collect());
        Some(reply)
    }

    fn acquire(
        &mut self,
        key: Fingerprint,
        now: Tick,
        cost: u64,
        query: &LeaseQuery,
    ) -> (Assessment, Option<Grant>) {
        match self {
            Self::Buckets(one) => one.acquire(key, now, cost, query),
            Self::Fixed(one) => one.acquire(key, now, cost, query),
            Self::Sliding(one) => one.acquire(key, now, cost, query),
        }
    }

    /// Only buckets are counted locally here.
    fn report(&mut self, key: Fingerprint, now: Tick, mut units: u64) {
        let Self::Buckets(one) = self else {
            return;
        };
        let state = one.states.entry(key).or_default();
        while units > 0 {
            let some = units.min(one.limit);
            one.arrival.take(&mut state.arrival, now, some);
            units -= some;
        }
    }

    fn refund(&mut self, key: Fingerprint, now: Tick, taken: Taken, units: u64) {
        match self {
            Self::Buckets(one) => {
                let state = one.states.entry(key).or_default();
                one.arrival.refund(&mut state.arrival, now, taken, units);
            }
            Self::Fixed(one) => one.refund(key, now, taken, units),
            Self::Sliding(one) => one.refund(key, now, taken, units),
        }
    }

    /// The units of a key that are on lease.
    pub(crate) fn on_lease(&self, key: Fingerprint) -> u64 {
        match self {
            Self::Buckets(one) => one.states.get(&key).map_or(0, |it| it.leases.total()),
            Self::Fixed(one) => one.states.get(&key).map_or(0, |it| it.granted),
            Self::Sliding(one) => one.states.get(&key).map_or(0, |it| it.granted),
        }
    }
}

impl Buckets {
    fn acquire(
        &mut self,
        key: Fingerprint,
        now: Tick,
        cost: u64,
        query: &LeaseQuery,
    ) -> (Assessment, Option<Grant>) {
        let state = self.states.entry(key).or_default();
        match &self.grantor {
            Some(grantor) => grantor.acquire(state, now, cost, query),
            // A debt is kept, and never repaired on a denial: what was reported above the limit has to be paid back.
            None => (self.arrival.acquire(&mut state.arrival, now, cost), None),
        }
    }
}

impl<A: Algorithm> Windows<A> {
    /// `None`: the quota is another.
    fn new(terms: &Terms) -> Option<Self> {
        let quota = A::new(&terms.quota)?;
        let length = u64::try_from(terms.quota.period().as_micros()).ok()?;
        // Where nothing is granted, nothing is requested.
        let lease = terms.lease.unwrap_or(LeaseTerms {
            window: Some(length),
            ..lease_terms(0, 1, 4, 2)
        });
        Some(Self {
            quota,
            grantor: WindowGrantor::new(A::new(&terms.quota)?, &lease)?,
            states: HashMap::new(),
        })
    }

    fn acquire(
        &mut self,
        key: Fingerprint,
        now: Tick,
        cost: u64,
        query: &LeaseQuery,
    ) -> (Assessment, Option<Grant>) {
        let state = self.states.entry(key).or_default();
        self.grantor.acquire(state, now, cost, query)
    }

    fn refund(&mut self, key: Fingerprint, now: Tick, taken: Taken, units: u64) {
        let state = self.states.entry(key).or_default();
        self.quota.refund(&mut state.counts, now, taken, units);
    }
}
