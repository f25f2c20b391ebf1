//! A query to the store.

use std::{fmt, sync::Arc};

use smallvec::SmallVec;
use tollgate_core::{Check, Checks, Decision, Outcome, Source, Tick, Verdict, store::Receipt};

use crate::{
    engine::{
        bound_rules::{BoundRules, has_twins},
        events::{LeaseEvent, ReportEvent},
        follow_up::FollowUp,
        index_set::IndexSet,
        reply::{GrantReply, LeaseReply, NoReply, Reply, ReportReply},
        reports::{Left, SentAt},
        request::Request,
    },
    lease::{
        grant::{LeaseQuery, ReturnedLease},
        terms::LeaseTerms,
    },
    sync::read,
};

/// A query to the store, from before it is sent until its reply is processed.
///
/// [`send`](Self::send) it once, and [`finish`](Self::finish) it with the reply, or with the reason why there is none. A query
/// that is dropped instead counts as one without a known outcome.
#[must_use = "a query that is dropped counts as one without a known outcome"]
pub struct Query {
    rules: BoundRules,
    kind: Kind,
    checks: Checks,
    /// Checks of whose keys nothing is kept: their replies begin no local usage, and no leases are wanted.
    uncached: IndexSet,
    leases: SmallVec<[LeaseItem; 1]>,
    /// Each costs the units to report.
    reports: SmallVec<[Check; 1]>,
    sent: Option<SentAt>,
    /// If `checks` are not all of the request.
    request: Option<Box<Request>>,
    is_abandoned: bool,
}

/// What a query is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Acquire,
    Peek,
    /// Reports and leases that go back, without a request.
    Maintenance,
}

/// What a query says about the lease of a key.
#[derive(Clone, Copy, Debug)]
pub struct LeaseItem {
    /// The key, with its rule.
    pub check: Check,
    /// The lease that goes back, and what is wanted.
    pub query: LeaseQuery,
}

/// What comes of a query.
#[derive(Debug)]
#[must_use]
pub enum Next {
    /// Other states are in other places, and have to be queried.
    Ask(Query),
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

impl Query {
    pub(crate) fn acquire(rules: &BoundRules, checks: Checks, uncached: IndexSet) -> Self {
        Self::new(rules, Kind::Acquire, checks, uncached)
    }

    pub(crate) fn peek(rules: &BoundRules, checks: Checks) -> Self {
        Self::new(rules, Kind::Peek, checks, IndexSet::default())
    }

    pub(crate) fn maintenance(rules: &BoundRules) -> Self {
        let checks = Checks::new();
        Self::new(rules, Kind::Maintenance, checks, IndexSet::default())
    }

    fn new(rules: &BoundRules, kind: Kind, checks: Checks, uncached: IndexSet) -> Self {
        Self {
            rules: rules.clone(),
            kind,
            checks,
            uncached,
            leases: SmallVec::new(),
            reports: SmallVec::new(),
            sent: None,
            request: None,
            is_abandoned: false,
        }
    }

    /// The same, for the first step of a request.
    pub(crate) fn of_request(mut self, mut request: Box<Request>) -> Self {
        if let Some((checks, uncached)) = request.next_step() {
            (self.checks, self.uncached) = (checks, uncached);
        }
        self.request = Some(request);
        self
    }

    /// Adds a key to be reported when the query is sent.
    pub(crate) fn add_report(&mut self, check: Check) {
        self.reports.push(check.with_cost(0));
    }

    /// Adds a lease that goes back.
    pub(crate) fn add_returned(&mut self, check: Check, returned: ReturnedLease) {
        let query = LeaseQuery {
            returned: Some(returned),
            ..LeaseQuery::default()
        };
        self.leases.push(LeaseItem { check, query });
    }

    /// The checks that the store decides in one step; none for maintenance.
    #[must_use]
    pub fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// Whether the units of the checks are taken, if all fit.
    #[must_use]
    pub fn takes(&self) -> bool {
        self.kind == Kind::Acquire
    }

    /// Whether the request takes more queries after this one, unless it is denied.
    #[must_use]
    pub fn has_more_steps(&self) -> bool {
        let request = self.request.as_ref();
        request.is_some_and(|request| request.has_more_steps())
    }

    /// Units to count before the checks are decided, whether they are left or not: each check costs that many.
    #[must_use]
    pub fn reports(&self) -> &[Check] {
        &self.reports
    }

    /// What it says about leases. One that goes back does so before the checks are decided; one is granted after they are
    /// allowed.
    #[must_use]
    pub fn leases(&self) -> &[LeaseItem] {
        &self.leases
    }

    /// On which terms a lease is granted.
    #[must_use]
    pub fn lease_terms(&self, item: &LeaseItem) -> Option<&LeaseTerms> {
        self.rules.limit(&item.check)?.lease_terms()
    }

    /// Sends it: `send` encodes it, and returns when it is in flight or has failed. What the query says about leases and
    /// reports is known only now.
    pub fn send<R>(&mut self, now: Tick, send: impl FnOnce(&Self) -> R) -> R {
        let engine = self
            .has_reports_to_take()
            .then(|| Arc::clone(self.rules.engine()));
        let sending = engine.as_ref().map(|engine| read(&engine.sending));
        self.sent = Some(self.rules.local().sent(now));
        if sending.is_some() {
            self.take_reports(now);
        }
        if self.takes() {
            self.query_leases(now);
        }
        let sent = send(self);
        drop(sending);
        let events = self.rules.events();
        for LeaseItem { query, .. } in &self.leases {
            if query.wants_grant() {
                events.lease(LeaseEvent::Requested);
            }
            if query.returned.is_some() {
                events.lease(LeaseEvent::Returned);
            }
        }
        if !self.reports.is_empty() {
            events.reports(ReportEvent::Sent, self.reports.len());
        }
        sent
    }

    fn has_reports_to_take(&self) -> bool {
        let is_due = |check: &Check| {
            let limit = self.rules.limit(check);
            limit.is_some_and(|limit| limit.has_due())
        };
        !self.reports.is_empty() || self.checks.iter().any(is_due)
    }

    fn take_reports(&mut self, now: Tick) {
        let Some(reports) = self.rules.local().reports() else {
            return;
        };
        let mut keys = std::mem::take(&mut self.reports);
        keys.extend(self.checks.iter().copied());
        for check in keys {
            let limit = self.rules.limit(&check);
            let Some(limit) = limit.filter(|limit| limit.report_terms().is_some()) else {
                continue;
            };
            let units = reports.report(limit, check.key(), now);
            if units > 0 {
                self.reports.push(check.with_cost(units));
            }
        }
    }

    fn query_leases(&mut self, now: Tick) {
        if self.rules.local().leases().is_none() || has_twins(&self.checks) {
            return;
        }
        for (index, check) in self.checks.iter().enumerate() {
            if self.uncached.contains(index) {
                continue;
            }
            let Some(limit) = self.rules.limit(check) else {
                continue;
            };
            let query = self.rules.local().lease_query(limit, check, now);
            self.leases.extend(query.map(|query| LeaseItem {
                check: *check,
                query,
            }));
        }
    }

    /// Processes the reply, or why there is none.
    pub fn finish(mut self, reply: Result<Reply, NoReply>, now: Tick) -> Next {
        // What did not go back is not sent again at once: the store is out of reach.
        let may_return = self.kind != Kind::Maintenance || reply.is_ok();
        // Before the decision, which the store has made after them.
        self.finish_reports(reply.as_ref(), now);
        let leases = std::mem::take(&mut self.leases);
        let mut follow_up = FollowUp::default();
        let mut decision = match reply {
            Ok(reply) => {
                self.keep_refused(&leases, &reply);
                self.learn(&reply, now);
                self.finish_leases(&leases, &reply, now, &mut follow_up);
                self.adjusted(reply.decision, now)
            }
            Err(why) => {
                self.on_no_reply(&leases, why);
                let outcome = match why {
                    NoReply::NothingToAsk => Outcome::NotAsked,
                    NoReply::NotRun | NoReply::Unknown => Outcome::Failed,
                };
                self.rules.unanswered(&self.checks, outcome)
            }
        };
        if self.is_abandoned && self.takes() && decision.is_allowed() {
            self.take_over(&decision, now, &mut follow_up);
        }
        let takes = self.takes();
        if let Some(mut request) = self.request.take() {
            request.on_decision(&decision, takes);
            let queries = std::mem::take(&mut request.follow_up.queries);
            follow_up.queries.extend(queries);
            if let Some((checks, uncached)) = request.next_step() {
                (self.checks, self.uncached) = (checks, uncached);
                request.follow_up = follow_up;
                (self.sent, self.request) = (None, Some(request));
                return Next::Ask(self);
            }
            if request.is_denied() {
                request.cancel(&self.rules, &mut follow_up);
            }
            decision = request.decision(&self.rules);
            if decision.outcome() == Outcome::Deny {
                request.take_back(&self.rules, now, &mut follow_up);
            }
        }
        if may_return {
            self.rules.return_retired(&mut follow_up, now);
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
        let mut follow_up = FollowUp::default();
        if let Some(mut request) = self.request.take() {
            follow_up = std::mem::take(&mut request.follow_up);
            request.take_back(&self.rules, now, &mut follow_up);
            for receipt in request.taken(&self.rules) {
                self.rules.take_over(&receipt, now, &mut follow_up);
            }
        }
        self.rules.return_retired(&mut follow_up, now);
        self.is_abandoned = true;
        let takes_windows = |check: &Check| {
            let limit = self.rules.limit(check);
            limit.is_some_and(|limit| limit.windows.is_some())
        };
        let is_needed = self.sent.is_some()
            && (self.is_about_leases_or_reports()
                || self.takes() && self.checks.iter().any(takes_windows));
        (is_needed.then_some(self), follow_up)
    }

    /// Whether units are lost if the reply is not processed.
    #[must_use]
    pub fn is_about_leases_or_reports(&self) -> bool {
        !self.reports.is_empty() || !self.leases.is_empty()
    }

    fn finish_reports(&mut self, reply: Result<&Reply, &NoReply>, now: Tick) {
        let (reports, sent) = (std::mem::take(&mut self.reports), self.sent);
        let (Some(sent), Some(table)) = (sent, self.rules.local().reports()) else {
            return;
        };
        for (index, report) in reports.iter().enumerate() {
            let (key, units) = (report.key(), report.cost());
            let Some(limit) = self.rules.limit(report) else {
                continue;
            };
            let reply = match reply {
                Ok(reply) => reply.reports.get(index).copied(),
                Err(NoReply::NotRun | NoReply::NothingToAsk) => Some(ReportReply::Refused),
                Err(NoReply::Unknown) => None,
            };
            match reply {
                Some(ReportReply::Counted { left, reset_after }) => {
                    let left = Left {
                        units: left,
                        reset_after,
                    };
                    table.on_reported(limit, key, units, (sent, now), left);
                }
                Some(ReportReply::Refused) => {
                    self.rules.events().reports(ReportEvent::Kept, 1);
                    table.keep(limit, key, units, now);
                }
                Some(ReportReply::Unknown) | None => self.report_lost(report),
            }
        }
    }

    fn report_lost(&self, report: &Check) {
        let (limit, reports) = (self.rules.limit(report), self.rules.local().reports());
        if let (Some(limit), Some(reports)) = (limit, reports) {
            let units = reports.lost(limit, report.key(), report.cost());
            self.rules.events().reports(ReportEvent::Lost, 1);
            self.rules.events().units_lost(units);
        }
    }

    /// Leases that the store has refused to take back are here again.
    fn keep_refused(&self, leases: &[LeaseItem], reply: &Reply) {
        let refused = leases.iter().zip(&reply.leases);
        for (item, _) in refused.filter(|(_, reply)| reply.is_refused) {
            self.not_returned(item);
        }
    }

    fn not_returned(&self, LeaseItem { check, query }: &LeaseItem) {
        if let (Some(limit), Some(leases)) = (self.rules.limit(check), self.rules.local().leases())
        {
            leases.on_not_sent(limit, check.key(), query.returned);
        }
    }

    fn learn(&self, reply: &Reply, now: Tick) {
        let (Kind::Acquire, Some(sent)) = (self.kind, self.sent) else {
            return;
        };
        let local = self.rules.local();
        local
            .store_time
            .on_reply((sent.at, now), reply.decision.at());
        let verdicts = self.checks.iter().zip(reply.decision.verdicts());
        for (index, (check, verdict)) in verdicts.enumerate() {
            let is_decided = matches!(verdict.outcome(), Outcome::Allow | Outcome::Deny);
            let Some(limit) = self.rules.limit(check) else {
                continue;
            };
            if !is_decided || verdict.source() != Source::Store {
                continue;
            }
            let is_cached = !reply.shared.contains(index) && !has_twins(&self.checks);
            let what = (is_cached, self.uncached.contains(index));
            local.learn(limit, check, verdict, (sent, now), what);
        }
    }

    fn finish_leases(
        &self,
        leases: &[LeaseItem],
        reply: &Reply,
        now: Tick,
        follow_up: &mut FollowUp,
    ) {
        let (local, events) = (self.rules.local(), self.rules.events());
        let sent = self.sent.map_or(now, |sent| sent.at);
        for (index, item) in leases.iter().enumerate() {
            let (check, key) = (&item.check, item.check.key());
            let (Some(limit), Some(table)) = (self.rules.limit(check), local.leases()) else {
                continue;
            };
            if self.kind == Kind::Maintenance {
                // More is left by now.
                local.unlearn(key);
                table.lost(limit, key);
                continue;
            }
            let lost = LeaseReply {
                is_refused: false,
                grant: GrantReply::Lost,
            };
            let reply_to_it = reply.leases.get(index).copied().unwrap_or(lost);
            let grant = match reply_to_it.grant {
                GrantReply::None => None,
                GrantReply::Granted(grant) => {
                    events.lease(LeaseEvent::Granted);
                    Some(grant)
                }
                GrantReply::Lost => {
                    events.lease(LeaseEvent::Lost);
                    table.lost(limit, key);
                    continue;
                }
            };
            let left = local.on_lease_reply(limit, check, (sent, now), reply.at, grant);
            if let Some(left) = left {
                let mut query = Self::maintenance(&self.rules);
                query.add_returned(*check, left);
                follow_up.queries.push(query);
            }
        }
    }

    fn on_no_reply(&self, leases: &[LeaseItem], why: NoReply) {
        for item in leases {
            match why {
                NoReply::NotRun | NoReply::NothingToAsk => self.not_returned(item),
                NoReply::Unknown => self.lease_lost(item),
            }
        }
    }

    fn lease_lost(&self, LeaseItem { check, query }: &LeaseItem) {
        if let (Some(limit), Some(leases)) = (self.rules.limit(check), self.rules.local().leases())
        {
            leases.lost(limit, check.key());
        }
        if self.kind == Kind::Maintenance {
            self.rules.local().unlearn(check.key());
        }
        if query.wants_grant() {
            self.rules.events().lease(LeaseEvent::Lost);
        }
    }

    /// The store's decision, with what this process may spend: for checks that take nothing.
    fn adjusted(&self, decision: Decision, now: Tick) -> Decision {
        let local = self.rules.local();
        let is_adjusted = |check: &Check| {
            let limit = self.rules.limit(check);
            limit.filter(|limit| match self.kind {
                Kind::Peek => true,
                _ => check.cost() == 0 && limit.lease_terms().is_some(),
            })
        };
        if local.leases().is_none() && (local.reports().is_none() || self.takes())
            || !self.checks.iter().any(|check| is_adjusted(check).is_some())
        {
            return decision;
        }
        let verdicts = self.checks.iter().zip(decision.verdicts());
        let verdicts = verdicts.map(|(check, verdict)| match is_adjusted(check) {
            Some(limit) => local.adjust(limit, check, *verdict, now),
            None => *verdict,
        });
        let enforces = |verdict: &Verdict| self.rules.rules().enforces(verdict.rule());
        Decision::new(decision.at(), verdicts, enforces)
    }

    /// What the store has taken for an abandoned request stays in this process, if it can be leased.
    fn take_over(&self, decision: &Decision, now: Tick, follow_up: &mut FollowUp) {
        for (check, verdict) in self.checks.iter().zip(decision.verdicts()) {
            let is_taken = check.cost() > 0
                && verdict.outcome() == Outcome::Allow
                && verdict.source() == Source::Store;
            if is_taken {
                let receipt = Receipt::new(*check, verdict, decision.at());
                self.rules.take_over(&receipt, now, follow_up);
            }
        }
    }
}

impl Drop for Query {
    /// It is unknown what became of it.
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            // What has to go back to the store is lost, because it cannot be sent from here.
            let mut follow_up = FollowUp::default();
            request.take_back(&self.rules, request.came_at(), &mut follow_up);
        }
        let is_sent = self.sent.is_some();
        for item in std::mem::take(&mut self.leases) {
            if is_sent {
                self.lease_lost(&item);
            } else {
                self.not_returned(&item);
            }
        }
        if is_sent {
            for report in std::mem::take(&mut self.reports) {
                self.report_lost(&report);
            }
        }
    }
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query")
            .field("kind", &self.kind)
            .field("checks", &self.checks.len())
            .field("reports", &self.reports.len())
            .field("leases", &self.leases.len())
            .finish_non_exhaustive()
    }
}
