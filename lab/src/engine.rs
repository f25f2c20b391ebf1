//! A process that decides with the engine, as a store drives it.

use std::sync::Arc;

use tollgate_core::{
    Check, Consistency as Counted, Decision, LeaseShare, MINUTE, Quota, Rule, RuleSet, Tick,
    store::{Fingerprint, Hold, Settlement},
};
use tollgate_prefilter::{
    Begin, Engine, FollowUp, LeaseItem, LocalRules, Next, NoReply, Places, Query, Reply, SlotTerms,
};

use crate::consistency::{Consistency, INTERVAL, Terms};

/// The rules of one process on an engine: the limit, and another rule that denies.
#[derive(Debug)]
pub(crate) struct Local {
    engine: Arc<Engine>,
    pub(crate) rules: Arc<LocalRules>,
}

/// What goes to the store.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Query {
        checks: Vec<Check>,
        reports: Vec<Check>,
        leases: Vec<LeaseItem>,
    },
    Settle(Hold, Settlement),
}

/// What goes to the store, and who processes the reply.
#[derive(Debug)]
pub(crate) struct Message {
    engine: Arc<Engine>,
    pub(crate) content: Content,
    pub(crate) query: Option<Query>,
    /// Once the store has carried it out.
    pub(crate) reply: Option<Reply>,
}

/// What becomes of a request.
#[derive(Debug)]
pub(crate) enum Step {
    Decided(Decision),
    Query(Box<Message>),
}

/// A key as the engine knows it: fingerprints are evenly spread.
pub(crate) fn fingerprint(key: u32) -> Fingerprint {
    let bits = u128::from(key) + 1;
    Fingerprint::from_bits(bits.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

impl Local {
    /// `None` if the quota cannot be reported.
    pub(crate) fn new(consistency: Consistency, terms: &Terms) -> Option<Self> {
        let counted = match consistency {
            Consistency::Exact | Consistency::DenyCache => Counted::Exact,
            Consistency::Leased(permille) if terms.lease.is_some() => Counted::Leased {
                share: LeaseShare::permille(permille),
            },
            Consistency::Leased(_) => Counted::Exact,
            Consistency::Eventual => Counted::Eventual {
                interval: std::time::Duration::from_micros(INTERVAL),
                max_unreported: terms.report.as_ref()?.max_unreported,
            },
        };
        let learns = consistency != Consistency::Exact;
        let engine = Engine::new(Engine::KEYS, learns, SlotTerms::new(15_000_000));
        let limit = Rule::new("limit", terms.quota).consistency(counted);
        let other = Rule::new("other", Quota::gcra(1, MINUTE));
        let rules = Arc::new(RuleSet::new([limit, other]).ok()?);
        Some(Self {
            rules: LocalRules::new(&engine, rules, Places::default(), |_| None),
            engine,
        })
    }

    /// A request comes; `is_denied`: the other rule denies it.
    pub(crate) fn begin(&self, now: Tick, key: u32, cost: u64, is_denied: bool) -> Step {
        let key = fingerprint(key);
        let checks = [Check::new(0, key, cost), Check::new(1, key, 1)];
        let checks = if is_denied { &checks[..] } else { &checks[..1] };
        match self.rules.begin(checks, u64::MAX, now) {
            Begin::Decided(decision) => Step::Decided(decision),
            Begin::Query(query) => Step::Query(Box::new(Message::new(&self.engine, query, now))),
        }
    }

    /// What is due without a request.
    pub(crate) fn maintain(&self, now: Tick) -> Vec<Message> {
        let queries = self.rules.poll_maintenance(now).into_iter();
        queries
            .map(|query| Message::new(&self.engine, query, now))
            .collect()
    }

    /// How often something may be due, in µs.
    pub(crate) fn pause(&self) -> Option<Tick> {
        let pause = self.rules.maintenance_interval()?;
        Some(pause.as_micros() as Tick)
    }
}

impl Message {
    fn new(engine: &Arc<Engine>, mut query: Query, now: Tick) -> Self {
        drop(engine.fill(&mut query, now));
        Self {
            engine: Arc::clone(engine),
            content: Content::Query {
                checks: query.checks.to_vec(),
                reports: query.reports.to_vec(),
                leases: query.leases.to_vec(),
            },
            query: Some(query),
            reply: None,
        }
    }

    /// Processes the reply, or that none has come. What is to be sent then.
    pub(crate) fn finish(self, is_answered: bool, now: Tick) -> Vec<Self> {
        let reply = self.reply.filter(|_| is_answered);
        let reply = reply.ok_or(NoReply::NoAnswer);
        let next = self.query.map(|query| query.finish(reply, now));
        let Some(Next::Done(_, follow_up)) = next else {
            return Vec::new();
        };
        let FollowUp {
            settle, queries, ..
        } = follow_up;
        let settle = settle.into_iter().map(|(receipt, how)| Self {
            engine: Arc::clone(&self.engine),
            content: Content::Settle(receipt, how),
            query: None,
            reply: None,
        });
        let queries = queries
            .into_iter()
            .map(|query| Self::new(&self.engine, query, now));
        settle.chain(queries).collect()
    }

    /// The queries that it stands for: reports and leases that travel together count alone.
    pub(crate) fn calls(&self) -> u64 {
        match &self.content {
            Content::Query {
                checks,
                reports,
                leases,
            } if checks.is_empty() => (reports.len() + leases.len()) as u64,
            _ => 1,
        }
    }
}
