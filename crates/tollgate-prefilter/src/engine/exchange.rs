//! One query to the store and its reply.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;
use tollgate_core::{Check, Decision, Outcome, Source, Tick, Verdict, store::Checks};

use crate::{
    denials::KeyBlock,
    engine::{
        bound_rules::{BoundRules, has_twins},
        counts::Event,
        entry::{Lease, Usage},
        local::SentAt,
        reply::{GrantReply, IndexSet, NoReply, Reply, ReportReply},
    },
    lease::grant::{LeaseQuery, ReturnedLease},
};

/// One query to the store and its reply: what is sent, and what this process learns.
pub(crate) struct Exchange {
    pub(crate) binding: Arc<BoundRules>,
    pub(crate) kind: Kind,
    pub(crate) checks: Checks,
    /// Checks whose keys are in no table: their replies begin no local usage, and no leases are wanted.
    new_keys: IndexSet,
    /// For how long the request waits at most, in µs.
    pub(crate) patience: Tick,
    pub(crate) leases: SmallVec<[LeaseItem; 1]>,
    /// Each costs the units to report.
    pub(crate) reports: SmallVec<[Check; 1]>,
    /// Denials by this process, by the index of the check; empty if no rule blocks keys.
    pub(crate) counted: SmallVec<[u16; 4]>,
    pub(crate) sent: Option<SentAt>,
}

/// What a query is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
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

impl Exchange {
    pub(crate) fn new(
        binding: &Arc<BoundRules>,
        kind: Kind,
        checks: Checks,
        new_keys: IndexSet,
        patience: Tick,
    ) -> Self {
        Self {
            binding: Arc::clone(binding),
            kind,
            checks,
            new_keys,
            patience,
            leases: SmallVec::new(),
            reports: SmallVec::new(),
            counted: SmallVec::new(),
            sent: None,
        }
    }

    /// One that no request waits for.
    pub(crate) fn maintenance(binding: &Arc<BoundRules>) -> Self {
        let (kind, none) = (Kind::Maintenance, IndexSet::default());
        Self::new(binding, kind, Checks::new(), none, 0)
    }

    /// Begins the next exchange of the same request.
    pub(crate) fn begin_step(&mut self, (checks, new_keys): (Checks, IndexSet)) {
        (self.checks, self.new_keys, self.sent) = (checks, new_keys, None);
    }

    /// Adds a lease that goes back, or else a key to be reported when the query is sent.
    pub(crate) fn add(&mut self, check: Check, returned: Option<ReturnedLease>) {
        if returned.is_none() {
            return self.reports.push(check.with_cost(0));
        }
        let query = LeaseQuery::default().with_returned(returned);
        self.leases.push(LeaseItem { check, query });
    }

    /// Whether the units of the checks are taken, if all fit.
    pub(crate) fn takes(&self) -> bool {
        self.kind == Kind::Acquire
    }

    /// Whether there may be units to report. Then they are taken and sent while the engine's `sending` is read.
    pub(crate) fn has_reports_to_take(&self) -> bool {
        let is_due = |check: &Check| {
            let limit = self.binding.limit(check);
            limit.is_some_and(|limit| limit.has_unreported())
        };
        !self.reports.is_empty() || self.checks.iter().any(is_due)
    }

    /// Adds what there is to say about leases and reports, as it is sent.
    pub(crate) fn fill(&mut self, now: Tick, takes_reports: bool) {
        self.sent = Some(self.binding.local().sent(now));
        if takes_reports {
            self.take_reports(now);
        }
        if self.takes() {
            self.query_leases(now);
        }
        if self.takes() && self.binding.rules.has_blocks() {
            let binding = &self.binding;
            let counted = self.checks.iter().map(|check| {
                let take = |known: &mut KeyBlock| std::mem::take(&mut known.local);
                (binding.local()).block(binding.limit(check)?, check.key(), take)
            });
            self.counted = counted.map(Option::unwrap_or_default).collect();
        }
        for LeaseItem { query, .. } in &self.leases {
            if query.requests_grant() {
                self.count(Event::LeaseRequested, 1);
            }
            if query.returned.is_some() {
                self.count(Event::LeaseReturned, 1);
            }
        }
        self.count(Event::ReportSent, self.reports.len() as u64);
    }

    fn count(&self, event: Event, count: u64) {
        self.binding.engine.counts.add(event, count);
    }

    /// Denials that were not sent are counted with the next call.
    fn keep_counted(&mut self) {
        let counted = std::mem::take(&mut self.counted);
        for (check, counted) in self.checks.iter().zip(counted) {
            if let Some(limit) = self.binding.limit(check) {
                self.binding.local().block(limit, check.key(), |known| {
                    known.local = known.local.saturating_add(counted);
                });
            }
        }
    }

    /// A decision without the store: a block that is known stands.
    fn without_store(&self, outcome: Outcome, now: Tick) -> Decision {
        let known = |check: &Check| {
            let limit = self.binding.limit(check)?;
            let stands = |known: &mut KeyBlock| known.stands(check, now);
            (self.binding.local().block(limit, check.key(), stands)).flatten()
        };
        let knows = self.binding.rules.has_blocks() && self.kind == Kind::Acquire;
        if !knows || !self.checks.iter().any(|check| known(check).is_some()) {
            return self.binding.unanswered(&self.checks, outcome);
        }
        let verdicts = self.checks.iter().map(|check| {
            known(check).unwrap_or_else(|| Verdict::unanswered(check.rule(), check.plan(), outcome))
        });
        self.binding.decision(verdicts, now)
    }

    fn take_reports(&mut self, now: Tick) {
        let mut keys = std::mem::take(&mut self.reports);
        keys.extend(self.checks.iter().copied());
        for check in keys {
            let limit = self.binding.limit(&check);
            let Some(limit) = limit.filter(|limit| limit.report_terms().is_some()) else {
                continue;
            };
            let report = |usage: &mut Usage| usage.report(now);
            let units = self.binding.local().usage(limit, check.key(), report);
            if let Some(units) = units.filter(|units| *units > 0) {
                self.reports.push(check.with_cost(units));
            }
        }
    }

    fn query_leases(&mut self, now: Tick) {
        if self.binding.pause.is_none() || has_twins(&self.checks) {
            return;
        }
        for (index, check) in self.checks.iter().enumerate() {
            if self.new_keys.contains(index) {
                continue;
            }
            let Some(limit) = self.binding.limit(check) else {
                continue;
            };
            let query = self.binding.local().lease_query(limit, check, now);
            self.leases.extend(query.map(|query| LeaseItem {
                check: *check,
                query,
            }));
        }
    }

    /// Processes the reply, or why there is none. Returns the store's decision, and leases that go back now.
    pub(crate) fn finish(
        &mut self,
        reply: Result<Reply, NoReply>,
        now: Tick,
    ) -> (Decision, Vec<Self>) {
        // Before the decision, which the store has made after them.
        self.finish_reports(reply.as_ref(), now);
        let leases = std::mem::take(&mut self.leases);
        match reply {
            Ok(reply) => {
                self.keep_refused(&leases, &reply);
                self.learn(&reply, now);
                let returned = self.finish_leases(&leases, &reply, now);
                (self.adjusted(reply.decision, now), returned)
            }
            Err(why) => {
                self.on_no_reply(&leases, why);
                let outcome = match why {
                    NoReply::NothingToSend => Outcome::NotDecided,
                    NoReply::NotRun | NoReply::Unknown => Outcome::Failed,
                };
                if why != NoReply::Unknown {
                    self.keep_counted();
                }
                (self.without_store(outcome, now), Vec::new())
            }
        }
    }

    fn finish_reports(&mut self, reply: Result<&Reply, &NoReply>, now: Tick) {
        let (reports, sent) = (std::mem::take(&mut self.reports), self.sent);
        let (Some(sent), local) = (sent, self.binding.local()) else {
            return;
        };
        for (index, report) in reports.iter().enumerate() {
            let Some(limit) = self.binding.limit(report) else {
                continue;
            };
            let reply = match reply {
                Ok(reply) => reply.reports.get(index).copied(),
                Err(NoReply::NotRun | NoReply::NothingToSend) => Some(ReportReply::Refused),
                Err(NoReply::Unknown) => None,
            };
            match reply {
                Some(ReportReply::Counted { left, reset_after }) => {
                    let times = (sent.order, local.order(now));
                    let fresh_at = sent.at.saturating_add(reset_after);
                    local.usage(limit, report.key(), |usage| {
                        usage.counted.reported(report.cost(), times, left);
                        usage.fresh_at = usage.fresh_at.max(fresh_at);
                    });
                }
                Some(ReportReply::Refused) => {
                    self.count(Event::ReportKept, 1);
                    let keep = |usage: &mut Usage| usage.counted.kept(report.cost(), now);
                    local.usage(limit, report.key(), keep);
                }
                Some(ReportReply::Unknown) | None => self.report_lost(report),
            }
        }
    }

    fn report_lost(&self, report: &Check) {
        if let Some(limit) = self.binding.limit(report) {
            let lose = |usage: &mut Usage| usage.counted.lost(report.cost());
            let units = self.binding.local().usage(limit, report.key(), lose);
            self.count(Event::ReportLost, 1);
            self.count(Event::UnitLost, units.unwrap_or(0));
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
        if let Some(limit) = self.binding.limit(check) {
            let back = |lease: &mut Lease| lease.holder.on_not_sent(query.returned);
            self.binding.local().lease(limit, check.key(), back);
        }
    }

    fn learn(&self, reply: &Reply, now: Tick) {
        let (Kind::Acquire, Some(sent)) = (self.kind, self.sent) else {
            return;
        };
        let local = self.binding.local();
        local
            .store_time
            .on_reply((sent.at, now), reply.decision.at());
        let verdicts = self.checks.iter().zip(reply.decision.verdicts());
        for (index, (check, verdict)) in verdicts.enumerate() {
            let is_decided = matches!(verdict.outcome(), Outcome::Allow | Outcome::Deny);
            let Some(limit) = self.binding.limit(check) else {
                continue;
            };
            if !is_decided || verdict.source() != Source::Store {
                continue;
            }
            let is_cached = !reply.shared.contains(index) && !has_twins(&self.checks);
            let what = (is_cached, self.new_keys.contains(index));
            let counted = reply.counted.get(index).copied().unwrap_or(0);
            local.learn(limit, check, verdict, (sent, now), what, counted);
        }
    }

    /// Returns what is left of leases of an earlier window.
    fn finish_leases(&self, leases: &[LeaseItem], reply: &Reply, now: Tick) -> Vec<Self> {
        let mut returned = Vec::new();
        let local = self.binding.local();
        let sent = self.sent.map_or(now, |sent| sent.at);
        for (index, item) in leases.iter().enumerate() {
            let check = &item.check;
            let Some(limit) = self.binding.limit(check) else {
                continue;
            };
            let lost = |lease: &mut Lease| lease.holder.lost();
            if self.kind == Kind::Maintenance {
                // More is left by now.
                self.binding.unlearn(check);
                local.lease(limit, check.key(), lost);
                continue;
            }
            let grant = match reply.leases.get(index).map(|reply| reply.grant) {
                Some(GrantReply::None) => None,
                Some(GrantReply::Granted(grant)) => {
                    self.count(Event::LeaseGranted, 1);
                    Some(grant)
                }
                Some(GrantReply::Lost) | None => {
                    self.count(Event::LeaseLost, 1);
                    local.lease(limit, check.key(), lost);
                    continue;
                }
            };
            let left = local.on_lease_reply(limit, check, (sent, now), reply.at, grant);
            if let Some(left) = left {
                let mut exchange = Self::maintenance(&self.binding);
                exchange.add(*check, Some(left));
                returned.push(exchange);
            }
        }
        returned
    }

    fn on_no_reply(&self, leases: &[LeaseItem], why: NoReply) {
        for item in leases {
            match why {
                NoReply::NotRun | NoReply::NothingToSend => self.not_returned(item),
                NoReply::Unknown => self.lease_lost(item),
            }
        }
    }

    fn lease_lost(&self, LeaseItem { check, query }: &LeaseItem) {
        let sent = self.sent.filter(|_| query.requests_grant());
        if let Some(limit) = self.binding.limit(check) {
            self.binding.local().lease(limit, check.key(), |lease| {
                lease.holder.lost();
                if let Some(sent) = sent {
                    lease.unanswered = lease.unanswered.max(sent.at);
                }
            });
        }
        if self.kind == Kind::Maintenance {
            self.binding.unlearn(check);
        }
        if query.requests_grant() {
            self.count(Event::LeaseLost, 1);
        }
    }

    /// The store's decision, with what this process may spend: for checks that take nothing.
    fn adjusted(&self, decision: Decision, now: Tick) -> Decision {
        let local = self.binding.local();
        let is_adjusted = |check: &Check| {
            let limit = self.binding.limit(check);
            limit.filter(|limit| match self.kind {
                Kind::Peek => true,
                _ => check.cost() == 0 && limit.lease_terms().is_some(),
            })
        };
        if self.binding.pause.is_none()
            || !self.checks.iter().any(|check| is_adjusted(check).is_some())
        {
            return decision;
        }
        let verdicts = self.checks.iter().zip(decision.verdicts());
        let verdicts = verdicts.map(|(check, verdict)| match is_adjusted(check) {
            Some(limit) => local.adjust(limit, check, *verdict, now),
            None => *verdict,
        });
        let enforces = |verdict: &Verdict| self.binding.rules.enforces(verdict.rule());
        let adjusted = Decision::new(decision.at(), verdicts, enforces);
        match decision.delay() {
            Duration::ZERO => adjusted,
            delay => adjusted.delayed(delay, decision.queue_places().iter().copied()),
        }
    }
}

impl Drop for Exchange {
    /// It is unknown what became of it.
    fn drop(&mut self) {
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

tollgate_core::debug_fields!(Exchange, it =>
    kind: it.kind, checks: it.checks.len(), reports: it.reports.len(), leases: it.leases.len()
);
