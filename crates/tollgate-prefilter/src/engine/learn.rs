//! What this process learns of a reply to a query, or of its absence.

use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{Check, Decision, Outcome, Source, Tick, Verdict};

use crate::{
    denials::KeyBlock,
    engine::{
        engine::EngineEvent,
        entry::Entry,
        limit::Effective,
        local_rules::has_twins,
        query::{Counted, Kind, LeaseItem, Query, Reply},
        request::NoReply,
    },
    lease::terms::Grant,
};

impl Query {
    /// Learns from the reply, or from its absence, and gives the store's decision.
    pub(crate) fn learn(&mut self, reply: Result<Reply, NoReply>, now: Tick) -> Decision {
        if self.kind == Kind::Reset {
            // Denials that were decided before may have come in between.
            for check in &self.checks {
                self.bound.forget(check);
            }
        }
        let reply = match reply {
            Ok(reply) => reply,
            Err(why) => {
                self.on_no_reply(why, now);
                return self.without_store(why, now);
            }
        };
        let at = reply.decision.at();
        if let Some(sent) = self.sent {
            (self.bound.engine.store_time).observe(sent.at, now, at);
        }
        let lost = NoReply::NoAnswer;
        // Before the decision, which the store has made after them.
        self.on_reports(|index| *reply.reports.get(index).unwrap_or(&Err(lost)), now);
        let leases = std::mem::take(&mut self.leases);
        for (item, _) in (leases.iter().zip(&reply.leases)).filter(|(_, it)| it.is_refused) {
            // It is here again.
            self.on_not_sent(item);
        }
        self.learn_verdicts(&reply, now);
        for (index, item) in leases.iter().enumerate() {
            let grant = reply.leases.get(index).map_or(Err(lost), |it| it.grant);
            self.on_lease(item, grant, at, now);
        }
        self.adjusted(reply.decision, now)
    }

    /// There is no reply about leases and reports.
    pub(crate) fn on_no_reply(&mut self, why: NoReply, now: Tick) {
        self.on_reports(|_| Err(why), now);
        for item in std::mem::take(&mut self.leases) {
            match why {
                NoReply::NotSent | NoReply::NothingToSend => self.on_not_sent(&item),
                NoReply::NoAnswer => self.on_lost(&item),
            }
        }
    }

    fn on_reports(&mut self, reply: impl Fn(usize) -> Result<Counted, NoReply>, now: Tick) {
        let Some(sent) = self.sent else { return };
        for (index, report) in std::mem::take(&mut self.reports).iter().enumerate() {
            match reply(index) {
                Ok(Counted { left, reset_after }) => {
                    let times = (sent.order, self.bound.engine.order(now));
                    let fresh_at = sent.at.saturating_add(reset_after);
                    self.bound.usage(report, |usage| {
                        usage.reported(report.cost(), times, left);
                        usage.fresh_at = usage.fresh_at.max(fresh_at);
                    });
                }
                Err(NoReply::NotSent | NoReply::NothingToSend) => {
                    self.count(EngineEvent::ReportKept, 1);
                    self.bound
                        .usage(report, |usage| usage.kept(report.cost(), now));
                }
                Err(NoReply::NoAnswer) => {
                    let units = self.bound.usage(report, |usage| usage.lost(report.cost()));
                    self.count(EngineEvent::ReportLost, 1);
                    (self.bound.engine).count(EngineEvent::UnitLost, units.unwrap_or(0));
                }
            }
        }
    }

    /// A lease that was returned certainly has not reached the store.
    fn on_not_sent(&self, LeaseItem { check, query }: &LeaseItem) {
        self.bound
            .lease(check, |lease| lease.holder.on_not_sent(query.returned));
    }

    /// It is unknown what became of what the query said about a lease.
    fn on_lost(&self, LeaseItem { check, query }: &LeaseItem) {
        if self.kind == Kind::Reset {
            // Another query in flight stays so.
            return;
        }
        let sent = self.sent.filter(|_| query.requests_grant());
        self.bound.lease(check, |lease| {
            lease.holder.lost();
            lease.unanswered = sent.map_or(0, |sent| sent.at).max(lease.unanswered);
        });
        if self.kind == Kind::Maintenance {
            self.bound.unlearn(check);
        }
        let lost = usize::from(query.requests_grant());
        self.count(EngineEvent::LeaseLost, lost);
    }

    /// The store has replied about a lease, at `at` by its clock.
    fn on_lease(
        &mut self,
        item: &LeaseItem,
        grant: Result<Option<Grant>, NoReply>,
        at: Tick,
        now: Tick,
    ) {
        let (bound, check) = (&self.bound, &item.check);
        match self.kind {
            Kind::Acquire | Kind::Peek => {}
            Kind::Maintenance => {
                // More is left by now.
                bound.unlearn(check);
                bound.lease(check, |lease| lease.holder.lost());
                return;
            }
            // Another query in flight stays so.
            Kind::Reset => return,
        }
        let Ok(grant) = grant else {
            self.count(EngineEvent::LeaseLost, 1);
            bound.lease(check, |lease| lease.holder.lost());
            return;
        };
        self.count(EngineEvent::LeaseGranted, usize::from(grant.is_some()));
        let Some((limit, terms)) =
            (bound.limit(check)).and_then(|it| Some((it, it.lease_terms()?)))
        else {
            return;
        };
        let sent = self.sent.map_or(now, |sent| sent.at);
        let left = bound.lease(check, |lease| {
            // What the store said is left was before the grant.
            let granted = grant.map_or(0, |grant| grant.units());
            lease.left = lease.left.saturating_sub(granted);
            lease.holder.on_granted((sent, now), at, grant, terms)
        });
        // What is left of a lease of the window before goes back, if it still weighs.
        if let Some(left) = left.flatten()
            && limit.windows.is_some_and(|windows| windows.slide)
        {
            let back = Self::maintenance(bound, [(*check, Some(left))]);
            self.returned.push(back);
        }
    }

    /// Learns from the store's verdicts.
    fn learn_verdicts(&self, reply: &Reply, now: Tick) {
        let (Kind::Acquire, Some(sent)) = (self.kind, self.sent) else {
            return;
        };
        let (bound, engine, has_twins) = (&self.bound, &self.bound.engine, has_twins(&self.checks));
        let verdicts = self.checks.iter().zip(reply.decision.verdicts());
        for (index, (check, verdict)) in verdicts.enumerate() {
            let is_decided = matches!(verdict.outcome(), Outcome::Allow | Outcome::Deny);
            let Some(limit) = bound.limit(check) else {
                continue;
            };
            if !is_decided || verdict.source() != Source::Store {
                continue;
            }
            let (at, cost) = (limit.at(check.key()), check.cost());
            let is_shared = reply.shared.contains(&index);
            if limit.blocks() && !is_shared {
                let block = KeyBlock::new(now, cost, limit.id, verdict).map(Box::new);
                if block.is_some() {
                    let may_go = |entry: &Entry| entry.may_go(now);
                    (engine.keys).with_new(at, now, may_go, |entry| entry.block = block);
                } else {
                    engine.keys.with(at, |entry| entry.block = None);
                }
            }
            if verdict.is_blocked() || verdict.outcome() == Outcome::Allow && cost > 0 {
                engine.keys.unlearn(at);
            } else if verdict.outcome() == Outcome::Deny
                && !is_shared
                && !has_twins
                && engine.came_back(at) < sent.order
                && let Some(words) = limit.denials.learn(sent.at, now, cost, verdict)
            {
                // Where a rule has plans, the last denial of a key counts: what was learned under another plan may have been overtaken.
                (engine.keys).learn(at, limit.id, words, limit.terms.has_plans);
            }
            let fresh_at = sent.at.saturating_add(verdict.reset_after_ticks());
            match &limit.terms.effective {
                Effective::Leased(_) => {
                    bound.lease(check, |lease| {
                        (lease.left, lease.fresh_at) = (verdict.remaining(), fresh_at);
                        if sent.at > lease.unanswered {
                            lease.unanswered = 0;
                        }
                    });
                }
                Effective::Eventual(terms) => {
                    let learn = |entry: &mut Entry| {
                        let usage = entry.usage(limit)?;
                        usage.on_remaining(sent.order, verdict.remaining());
                        usage.fresh_at = fresh_at;
                        // The store does not know of these.
                        usage.uses(now, usage.unreported(), terms);
                        Some(())
                    };
                    engine.with_new(limit, check.key(), now, learn);
                }
                Effective::Exact(_) => {}
            }
        }
    }

    /// A decision without the store: a block that is known stands.
    fn without_store(&self, why: NoReply, now: Tick) -> Decision {
        let outcome = match why {
            NoReply::NothingToSend => Outcome::NotDecided,
            NoReply::NotSent | NoReply::NoAnswer => Outcome::Failed,
        };
        let known = |check: &Check| {
            let known = self.bound.block(check, |it| it.stands(check, now));
            known.filter(|_| self.takes())
        };
        let known = self.checks.iter().map(known);
        let known: SmallVec<[Option<Verdict>; 4]> = known.collect();
        let at = match known.iter().any(Option::is_some) {
            true => self.bound.engine.store_now(now),
            false => 0,
        };
        let verdicts = self.checks.iter().zip(known).map(|(check, known)| {
            known.unwrap_or_else(|| Verdict::unanswered(check.rule(), check.plan(), outcome))
        });
        self.bound.decision(at, verdicts)
    }

    /// The store's decision, with what this process may spend: for checks that take nothing.
    fn adjusted(&self, decision: Decision, now: Tick) -> Decision {
        let bound = &self.bound;
        let is_adjusted = |check: &Check| match self.kind {
            Kind::Peek => bound.limit(check).is_some(),
            _ => {
                check.cost() == 0
                    && bound
                        .limit(check)
                        .is_some_and(|it| it.lease_terms().is_some())
            }
        };
        if bound.pause.is_none() || !self.checks.iter().any(is_adjusted) {
            return decision;
        }
        let verdicts = self
            .checks
            .iter()
            .zip(decision.verdicts())
            .map(|(check, verdict)| match is_adjusted(check) {
                true => bound.adjust(check, *verdict, now),
                false => *verdict,
            });
        let adjusted = bound.decision(decision.at(), verdicts);
        match decision.delay() {
            Duration::ZERO => adjusted,
            delay => adjusted.delayed(delay, decision.queue_places().iter().copied()),
        }
    }
}
