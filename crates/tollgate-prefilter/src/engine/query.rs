//! A query to the store: what is sent, and what becomes of its request.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::{Check, Decision, Outcome, Tick, store::Checks};

use crate::{
    engine::{
        engine::{Engine, EngineEvent, SentAt},
        local_rules::{LocalRules, has_twins},
        request::{NoReply, Request, Settlements},
    },
    lease::terms::{Grant, LeaseQuery, LeaseTerms, ReturnedLease},
    sync::{RwLockReadGuard, read},
};

/// A query to the store, from before it is sent until its reply is processed.
///
/// [Fill](Engine::fill) it, send it once, and [`finish`](Self::finish) it with the reply, or with the reason why there is none. A query
/// that is dropped instead counts as one without a known outcome.
#[must_use = "a query that is dropped counts as one without a known outcome"]
pub struct Query {
    pub(crate) bound: Arc<LocalRules>,
    pub(crate) kind: Kind,
    /// The checks that the store decides in one step; none for maintenance.
    pub checks: Checks,
    /// For how long the request waits for units at most, in µs: where its rules let it [wait](tollgate_core::Rule::wait).
    pub patience: Tick,
    /// A returned lease is taken back before the checks are decided; a new one is granted after they are allowed.
    pub leases: SmallVec<[LeaseItem; 1]>,
    /// Local usage to report: units that the store counts before it decides the checks, even above the limit. The cost of each check is
    /// their number.
    pub reports: SmallVec<[Check; 1]>,
    pub(crate) sent: Option<SentAt>,
    /// If the query has not all checks of its request.
    request: Option<Box<Request>>,
    /// Leases that go back, after earlier steps.
    pub(crate) returned: Vec<Self>,
}

/// What a query is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Acquire,
    Peek,
    /// Reports and leases that go back, without a request.
    Maintenance,
    /// The states of the checks are forgotten.
    Reset,
}

/// What a query says about the lease of a key.
#[derive(Clone, Copy, Debug)]
pub struct LeaseItem {
    /// The key, with its rule.
    pub check: Check,
    /// The lease that goes back, and what is wanted.
    pub query: LeaseQuery,
}

impl LeaseItem {
    /// One that only goes back.
    pub(crate) fn returned(check: Check, returned: ReturnedLease) -> Self {
        let query = LeaseQuery::default().with_returned(Some(returned));
        Self { check, query }
    }
}

/// What comes of a query. There will be no other variants: a store has to handle each.
#[derive(Debug)]
#[must_use]
pub enum Next {
    /// Other states are in other places, and have to be queried.
    Query(Query),
    /// The request is decided, with all its checks; and what is to be sent now.
    Done(Decision, FollowUp),
}

/// What the store has to send now, and no request waits for.
#[derive(Debug, Default)]
#[must_use = "units are lost if it is not sent"]
pub struct FollowUp {
    /// Units to settle. Those next to each other with the same settlement are of one ticket, and go in one call.
    pub settle: Settlements,
    /// Leases that go back.
    pub queries: Vec<Query>,
}

impl Engine {
    /// Puts what there is to say about leases and reports into a query, which has to be sent before the result is dropped: a refund of
    /// units that it reports has to come after it.
    #[must_use = "it has to live until the query is in flight"]
    pub fn fill(&self, query: &mut Query, now: Tick) -> Option<RwLockReadGuard<'_, ()>> {
        let is_due = |check: &Check| {
            let limit = query.bound.limit(check);
            limit.is_some_and(|limit| limit.has_unreported())
        };
        let has_reports = !query.reports.is_empty() || query.checks.iter().any(is_due);
        let reports = has_reports.then(|| read(&self.sending));
        query.fill(now, has_reports);
        reports
    }
}

impl Query {
    pub(crate) fn new(bound: &Arc<LocalRules>, kind: Kind, checks: Checks, patience: Tick) -> Self {
        Self {
            bound: Arc::clone(bound),
            kind,
            checks,
            patience,
            leases: SmallVec::new(),
            reports: SmallVec::new(),
            sent: None,
            request: None,
            returned: Vec::new(),
        }
    }

    /// One that no request waits for: leases that go back, or else keys to be reported when it is sent.
    pub(crate) fn maintenance(
        bound: &Arc<LocalRules>,
        keys: impl IntoIterator<Item = (Check, Option<ReturnedLease>)>,
    ) -> Self {
        let mut query = Self::new(bound, Kind::Maintenance, Checks::new(), 0);
        for (check, returned) in keys {
            match returned {
                None => query.reports.push(check.with_cost(0)),
                Some(returned) => query.leases.push(LeaseItem::returned(check, returned)),
            }
        }
        query
    }

    /// The first step of a request whose checks this process has decided in part, or whose states lie in several places.
    pub(crate) fn of_request(mut self, request: Request) -> Self {
        self.request = Some(Box::new(request));
        self.begin_step();
        self
    }

    /// The next step of its request, if there is one.
    fn begin_step(&mut self) -> bool {
        let next = self.request.as_mut().and_then(|it| it.next_step());
        let Some(checks) = next else {
            return false;
        };
        (self.checks, self.sent) = (checks, None);
        true
    }

    /// Whether the units of the checks are taken, if all fit.
    pub fn takes(&self) -> bool {
        self.kind == Kind::Acquire
    }

    /// On which terms a lease is granted.
    pub fn lease_terms(&self, item: &LeaseItem) -> Option<&LeaseTerms> {
        self.bound.limit(&item.check)?.lease_terms()
    }

    pub(crate) fn count(&self, event: EngineEvent, count: usize) {
        self.bound.engine.count(event, count as u64);
    }

    /// Adds what there is to say about leases and reports, as it is sent.
    fn fill(&mut self, now: Tick, takes_reports: bool) {
        let order = self.bound.engine.order(now);
        self.sent = Some(SentAt { at: now, order });
        if takes_reports {
            let keys = std::mem::take(&mut self.reports);
            for check in keys.iter().chain(&self.checks) {
                let units = self.bound.usage(check, |usage| usage.report(now));
                if let Some(units) = units.filter(|units| *units > 0) {
                    self.reports.push(check.with_cost(units));
                }
            }
        }
        if self.takes() && self.bound.pause.is_some() && !has_twins(&self.checks) {
            // Where units of a lease would not be spent, it stays as it is.
            let with = self.bound.places.with.filter(|_| self.checks.len() > 1);
            let spends = |check: &&Check| !check.policy().is_exact() && with != Some(check.rule());
            let leases = self.checks.iter().filter(spends);
            let leases: SmallVec<[_; 1]> = leases
                .filter_map(|check| self.lease_query(check, now))
                .collect();
            self.leases.extend(leases);
        }
        let requested = self.leases.iter().filter(|it| it.query.requests_grant());
        self.count(EngineEvent::LeaseRequested, requested.count());
        let returned = self.leases.iter().filter(|it| it.query.returned.is_some());
        self.count(EngineEvent::LeaseReturned, returned.count());
        self.count(EngineEvent::ReportSent, self.reports.len());
    }

    /// What the query says about the lease of a check's key; `None`: nothing.
    fn lease_query(&self, check: &Check, now: Tick) -> Option<LeaseItem> {
        let limit = self.bound.limit(check)?;
        let terms = limit.lease_terms()?;
        let query = (self.bound.engine).with_new(limit, check.key(), now, |entry| {
            let lease = entry.lease(limit)?;
            let is_answered = lease.unanswered == 0;
            is_answered.then(|| lease.holder.query(now, check.cost(), terms))
        });
        let query = query.filter(|query| !query.is_empty())?;
        Some(LeaseItem {
            check: *check,
            query,
        })
    }

    /// Processes the reply, or why there is none.
    pub fn finish(mut self, reply: Result<Reply, NoReply>, now: Tick) -> Next {
        // What did not go back is not sent again at once: the store is out of reach.
        let may_return = reply.is_ok() || matches!(self.kind, Kind::Acquire | Kind::Peek);
        let (bound, takes) = (Arc::clone(&self.bound), self.takes());
        let mut settle = Settlements::new();
        let mut decision = self.learn(reply, now);
        if let Some(request) = &mut self.request {
            request.on_decision(&bound, &decision, takes);
            if self.begin_step() {
                return Next::Query(self);
            }
        }
        if let Some(request) = self.request.take() {
            if request.is_denied {
                request.cancel(&bound, &mut settle);
            }
            decision = request.decision(&bound);
            // A request that waits pays when it starts, but for its place in the queue.
            if decision.outcome() == Outcome::Deny || !decision.delay().is_zero() {
                settle.extend(request.release_local(&bound, now));
            }
        }
        let mut queries = std::mem::take(&mut self.returned);
        if may_return {
            queries.extend(bound.retired_leases(now));
        }
        Next::Done(decision, FollowUp { settle, queries })
    }

    /// No request waits for it any more, and the decision will be dropped. What this process has spent for the request is
    /// given back. What the store takes for it stays taken.
    ///
    /// Returns the query if its reply still has to be [processed](Self::finish): it reports units, or is about a lease.
    pub fn abandon(mut self, now: Tick) -> (Option<Self>, FollowUp) {
        let bound = Arc::clone(&self.bound);
        let mut follow_up = FollowUp {
            settle: Settlements::new(),
            queries: std::mem::take(&mut self.returned),
        };
        if let Some(request) = self.request.take() {
            follow_up.settle = request.release_local(&bound, now);
        }
        follow_up.queries.extend(bound.retired_leases(now));
        let is_needed = self.sent.is_some() && self.is_about_leases_or_reports();
        (is_needed.then_some(self), follow_up)
    }

    /// Whether units are lost if the reply is not processed.
    pub fn is_about_leases_or_reports(&self) -> bool {
        !self.reports.is_empty() || !self.leases.is_empty()
    }
}

impl Drop for Query {
    /// It is unknown what became of it.
    fn drop(&mut self) {
        let why = self.sent.map_or(NoReply::NotSent, |_| NoReply::NoAnswer);
        self.on_no_reply(why, 0);
        if let Some(request) = self.request.take() {
            // What has to go back to the store is lost, because it cannot be sent from here.
            let _ = request.release_local(&self.bound, request.at);
        }
    }
}

tollgate_core::debug_fields!(Query, it =>
    kind: it.kind, checks: it.checks.len(), reports: it.reports.len(), leases: it.leases.len()
);

// What a store replies to a query.

/// The store's reply to a [`Query`](crate::Query).
#[derive(Debug)]
pub struct Reply {
    /// The decision about [`Query::checks`](crate::Query::checks), at the time of the reply by the store's clock.
    pub decision: Decision,
    /// The checks, by index, whose state belongs to other clients as well. Their denials are not cached.
    pub shared: SmallVec<[usize; 2]>,
    /// The replies to the reports: one each, in the order of [`Query::reports`](crate::Query::reports).
    pub reports: SmallVec<[Result<Counted, NoReply>; 1]>,
    /// The replies about the leases: one each, in the order of [`Query::leases`](crate::Query::leases).
    pub leases: SmallVec<[LeaseReply; 1]>,
}

impl Reply {
    /// A reply to a query without reports and leases, and whose states belong to no other clients.
    pub fn new(decision: Decision) -> Self {
        Self {
            decision,
            shared: SmallVec::new(),
            reports: SmallVec::new(),
            leases: SmallVec::new(),
        }
    }
}

/// The store has counted the units of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// How many are left.
    pub left: u64,
    /// In how many µs nothing is used any more.
    pub reset_after: Tick,
}

/// The store's reply about the lease of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseReply {
    /// Whether the store certainly did not take back the lease that was returned.
    pub is_refused: bool,
    /// What it granted, if anything.
    pub grant: Result<Option<Grant>, NoReply>,
}
