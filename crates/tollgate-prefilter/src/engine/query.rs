//! A query to the store.

use std::fmt;

use tollgate_core::{Check, Decision, Outcome, Source, Tick};

use crate::{
    engine::{
        engine::Engine,
        exchange::{Exchange, Kind, LeaseItem},
        maintenance::Maintenance,
        reply::{NoReply, Reply},
        request::Request,
        settle::{Settlements, keep_abandoned},
    },
    lease::terms::LeaseTerms,
    sync::{RwLockReadGuard, read},
};

/// A query to the store, from before it is sent until its reply is processed.
///
/// [Fill](Engine::fill) it, send it once, and [`finish`](Self::finish) it with the reply, or with the reason why there is none. A query
/// that is dropped instead counts as one without a known outcome.
#[must_use = "a query that is dropped counts as one without a known outcome"]
pub struct Query {
    exchange: Exchange,
    /// If the query has not all checks of its request.
    request: Option<Box<Request>>,
    is_abandoned: bool,
}

/// What comes of a query. There will be no other variants: a store has to handle each.
#[derive(Debug)]
#[must_use]
pub enum Next {
    /// Other states are in other places, and have to be queried.
    Query(Query),
    /// The request is decided.
    Done(Done),
}

/// A request is decided.
#[derive(Debug)]
#[must_use]
pub struct Done {
    /// The decision about all checks of the request.
    pub decision: Decision,
    /// What is to be sent now.
    pub follow_up: FollowUp,
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

impl FollowUp {
    pub(crate) fn new(settle: Settlements, returned: Vec<Exchange>) -> Self {
        Self {
            settle,
            queries: returned.into_iter().map(Query::from).collect(),
        }
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.settle.is_empty() && self.queries.is_empty()
    }

    fn add_queries(&mut self, exchanges: Vec<Exchange>) {
        self.queries.extend(exchanges.into_iter().map(Query::from));
    }
}

/// What is in the reports of a query is on its way when this is dropped.
#[derive(Debug)]
#[must_use = "it has to live until the query is in flight"]
pub struct Sending<'a> {
    _reports: Option<RwLockReadGuard<'a, ()>>,
}

impl Engine {
    /// Puts what there is to say about leases and reports into a query, which has to be sent before the result is dropped: a refund of
    /// units that it reports has to come after it.
    pub fn fill(&self, query: &mut Query, now: Tick) -> Sending<'_> {
        let has_reports = query.exchange.has_reports_to_take();
        let reports = has_reports.then(|| read(&self.sending));
        query.exchange.fill(now, has_reports);
        Sending { _reports: reports }
    }
}

impl Query {
    /// The first step of a request.
    pub(crate) fn of_request(mut exchange: Exchange, mut request: Box<Request>) -> Self {
        if let Some(step) = request.next_step() {
            exchange.begin_step(step);
        }
        Self {
            exchange,
            request: Some(request),
            is_abandoned: false,
        }
    }

    /// The checks that the store decides in one step; none for maintenance.
    pub fn checks(&self) -> &[Check] {
        &self.exchange.checks
    }

    /// Whether the units of the checks are taken, if all fit.
    pub fn takes(&self) -> bool {
        self.exchange.takes()
    }

    /// For how long the request waits for units at most, in µs: where its rules let it [wait](tollgate_core::Rule::wait).
    pub fn patience(&self) -> Tick {
        self.exchange.patience
    }

    /// Whether the request takes more queries after this one, unless it is denied.
    pub fn has_more_steps(&self) -> bool {
        let request = self.request.as_ref();
        request.is_some_and(|request| !request.steps.is_empty())
    }

    /// Local usage to report: units that the store counts before it decides the checks, even above the limit. The cost of each check is
    /// their number.
    pub fn reports(&self) -> &[Check] {
        &self.exchange.reports
    }

    /// Denials by this process that the store has not counted towards [blocks](tollgate_core::Rule::block), by the index of the check;
    /// empty if there are none.
    pub fn counted(&self) -> &[u16] {
        &self.exchange.counted
    }

    /// The leases of the query. A returned lease is taken back before the checks are decided; a new one is granted after they are
    /// allowed.
    pub fn leases(&self) -> &[LeaseItem] {
        &self.exchange.leases
    }

    /// On which terms a lease is granted.
    pub fn lease_terms(&self, item: &LeaseItem) -> Option<&LeaseTerms> {
        self.exchange.binding.limit(&item.check)?.lease_terms()
    }

    /// Processes the reply, or why there is none.
    pub fn finish(mut self, reply: Result<Reply, NoReply>, now: Tick) -> Next {
        // What did not go back is not sent again at once: the store is out of reach.
        let may_return = self.exchange.kind != Kind::Maintenance || reply.is_ok();
        let (mut decision, returned) = self.exchange.finish(reply, now);
        let takes = self.takes();
        let mut follow_up = FollowUp::default();
        if self.is_abandoned && takes && decision.is_allowed() {
            follow_up.settle = self.keep_abandoned(&decision, now);
        }
        if let Some(mut request) = self.request.take() {
            request.on_decision(&decision, takes);
            request.returned.extend(returned);
            if let Some(step) = request.next_step() {
                self.exchange.begin_step(step);
                self.request = Some(request);
                return Next::Query(self);
            }
            let binding = &self.exchange.binding;
            follow_up.add_queries(std::mem::take(&mut request.returned));
            if request.is_denied {
                request.cancel(binding, &mut follow_up.settle);
            }
            decision = request.decision(binding);
            // A request that waits pays when it starts, but for its place in the queue.
            if decision.outcome() == Outcome::Deny || !decision.delay().is_zero() {
                let refunds = request.give_back_local(binding, now);
                follow_up.settle.extend(refunds);
            }
        } else {
            follow_up.add_queries(returned);
        }
        if may_return {
            let retired = Maintenance::retired_leases(&self.exchange.binding, now);
            follow_up.add_queries(retired);
        }
        Next::Done(Done {
            decision,
            follow_up,
        })
    }

    /// No request waits for it any more, and the decision will be dropped. What this process has spent for the request is
    /// given back.
    ///
    /// Returns the query if its reply still has to be [processed](Self::finish): it reports units, is about a lease, or takes
    /// units of a window that can be leased, which stay in this process.
    pub fn abandon(mut self, now: Tick) -> (Option<Self>, FollowUp) {
        let binding = &self.exchange.binding;
        let mut follow_up = FollowUp::default();
        if let Some(mut request) = self.request.take() {
            follow_up.add_queries(std::mem::take(&mut request.returned));
            follow_up.settle = request.give_back_local(binding, now);
            for receipt in request.taken(binding) {
                let refund = keep_abandoned(binding, &receipt, now);
                follow_up.settle.extend(refund);
            }
        }
        follow_up.add_queries(Maintenance::retired_leases(binding, now));
        self.is_abandoned = true;
        let takes_windows = |check: &Check| {
            let limit = binding.limit(check);
            limit.is_some_and(|limit| limit.windows.is_some())
        };
        let is_needed = self.exchange.sent.is_some()
            && (self.is_about_leases_or_reports()
                || self.takes() && self.checks().iter().any(takes_windows));
        (is_needed.then_some(self), follow_up)
    }

    /// Whether units are lost if the reply is not processed.
    pub fn is_about_leases_or_reports(&self) -> bool {
        !self.reports().is_empty() || !self.leases().is_empty()
    }

    /// What the store has taken for an abandoned request stays in this process, if it can be leased.
    fn keep_abandoned(&self, decision: &Decision, now: Tick) -> Settlements {
        let checks = self.checks().iter().zip(decision.verdicts());
        let taken = checks.filter(|(check, verdict)| {
            check.cost() > 0
                && !verdict.is_of_slots()
                && verdict.outcome() == Outcome::Allow
                && verdict.source() == Source::Store
        });
        let receipts = taken.map(|(check, verdict)| verdict.hold(*check, decision.at()));
        let binding = &self.exchange.binding;
        let refunds = receipts.filter_map(|receipt| keep_abandoned(binding, &receipt, now));
        refunds.collect()
    }
}

impl From<Exchange> for Query {
    fn from(exchange: Exchange) -> Self {
        Self {
            exchange,
            request: None,
            is_abandoned: false,
        }
    }
}

impl Drop for Query {
    /// It is unknown what became of it.
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            // What has to go back to the store is lost, because it cannot be sent from here.
            let _ = request.give_back_local(&self.exchange.binding, request.at);
        }
    }
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.exchange, f)
    }
}
