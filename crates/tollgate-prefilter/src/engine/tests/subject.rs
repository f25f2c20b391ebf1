//! An engine with one rule set, and a store whose replies the test decides.

use std::{cell::Cell, sync::Arc, time::Duration};

use tollgate_core::{
    Check, Consistency, Decision, LeaseShare, MINUTE, Quota, Retry, Rule, RuleSet, Source, Tick,
    Verdict,
    algorithm::Assessment,
    store::{Fingerprint, Hold, Settlement},
};

use crate::{
    Begin, Counted, Engine, FollowUp, Grant, LeaseReply, LocalRules, Next, Places, Query, Reply,
    SlotTerms,
};

pub(super) const KEY: Fingerprint = key(7);

/// Fingerprints are evenly spread.
pub(super) const fn key(number: u128) -> Fingerprint {
    Fingerprint::from_bits(number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

/// The store's clock is this far ahead of the process's.
pub(super) const AHEAD: Tick = 12_345_678;

/// The half of a round trip.
pub(super) const WAY: Tick = 150;

pub(super) const LEASED: Consistency = Consistency::Leased {
    share: LeaseShare::percent(10),
};

pub(super) const EVENTUAL: Consistency = Consistency::Eventual {
    interval: Duration::from_millis(100),
    max_unreported: 10,
};

/// The states of each key lie in a place of their own.
pub(super) const BY_KEY: Places = Places {
    are_several: true,
    with: None,
};

pub(super) fn rule_set(rules: impl IntoIterator<Item = Rule>) -> Arc<RuleSet> {
    Arc::new(RuleSet::new(rules).expect("valid rules"))
}

pub(super) struct Subject {
    pub(super) engine: Arc<Engine>,
    pub(super) rules: Arc<LocalRules>,
    pub(super) now: Cell<Tick>,
}

impl Subject {
    pub(super) fn new(quota: Quota, consistency: Consistency) -> Self {
        Self::of([Rule::new("rule", quota).consistency(consistency)])
    }

    pub(super) fn of(rules: impl IntoIterator<Item = Rule>) -> Self {
        Self::on(Places::default(), rules)
    }

    pub(super) fn on(places: Places, rules: impl IntoIterator<Item = Rule>) -> Self {
        let engine = Engine::new(Engine::KEYS, true, SlotTerms::new(15_000_000));
        Self {
            rules: LocalRules::new(&engine, rule_set(rules), places, |_| None),
            engine,
            now: Cell::new(1_700_000_000_000_000),
        }
    }

    pub(super) fn now(&self) -> Tick {
        self.now.get()
    }

    pub(super) fn advance(&self, micros: Tick) {
        self.now.set(self.now() + micros);
    }

    pub(super) fn begin(&self, checks: &[Check]) -> Begin {
        self.rules.begin(checks, Tick::MAX, self.now())
    }

    /// The decision of a request that the process decides locally.
    pub(super) fn decide(&self, checks: &[Check]) -> Decision {
        match self.begin(checks) {
            Begin::Decided(decision) => decision,
            Begin::Query(query) => panic!("it is decided locally: {query:?}"),
        }
    }

    /// The query of a request that the store decides, sent.
    pub(super) fn query(&self, checks: &[Check]) -> Query {
        match self.begin(checks) {
            Begin::Query(mut query) => {
                self.fill(&mut query);
                query
            }
            Begin::Decided(decision) => panic!("the store decides it: {decision:?}"),
        }
    }

    pub(super) fn fill(&self, query: &mut Query) {
        drop(self.engine.fill(query, self.now()));
    }

    pub(super) fn is_local(&self, checks: &[Check]) -> bool {
        matches!(self.begin(checks), Begin::Decided(_))
    }

    /// The store's reply to a query, which takes a round trip; the same answer to each check.
    pub(super) fn reply(&self, query: &Query, answer: Assessment, grant: Option<Grant>) -> Reply {
        let at = self.now() + AHEAD + WAY;
        self.advance(2 * WAY);
        let verdict = |check: &Check| Verdict::new(check.rule(), 0, answer, Source::Store);
        let verdicts = query.checks.iter().map(verdict);
        let counted = Ok(Counted {
            left: answer.remaining,
            reset_after: answer.reset_after,
        });
        let lease = LeaseReply {
            is_refused: false,
            grant: Ok(grant),
        };
        let mut reply = Reply::new(Decision::new(at, verdicts, |_| true));
        reply.reports = query.reports.iter().map(|_| counted).collect();
        reply.leases = query.leases.iter().map(|_| lease).collect();
        reply
    }

    pub(super) fn finish(&self, query: Query, answer: Assessment, grant: Option<Grant>) -> Done {
        let reply = self.reply(&query, answer, grant);
        done(query.finish(Ok(reply), self.now()))
    }

    /// The store decides a request.
    pub(super) fn decided(&self, checks: &[Check], answer: Assessment) -> Decision {
        self.finish(self.query(checks), answer, None).decision
    }

    /// The store decides requests until something is kept of their key, and grants this once a lease is wanted.
    pub(super) fn known(&self, answer: Assessment, grant: Option<Grant>) {
        self.known_of(one(), answer, grant);
    }

    /// The same of another key.
    pub(super) fn known_of(&self, check: Check, answer: Assessment, grant: Option<Grant>) {
        let check = [check];
        let _ = self.decided(&check, answer);
        let Some(grant) = grant else { return };
        for _ in 0..100 {
            let query = self.query(&check);
            let is_wanted = !query.leases.is_empty();
            let grant = is_wanted.then_some(grant);
            drop(self.finish(query, answer, grant));
            if is_wanted {
                return;
            }
        }
        panic!("no lease is wanted");
    }

    pub(super) fn settle(&self, receipt: Hold, how: Settlement) -> Vec<(Hold, Settlement)> {
        let FollowUp { settle, queries } = self.rules.settle(&[receipt], how, self.now());
        assert_eq!(queries.len(), 0);
        settle.to_vec()
    }
}

#[must_use]
pub(super) struct Done {
    pub(super) decision: Decision,
    pub(super) follow_up: FollowUp,
}

pub(super) fn done(next: Next) -> Done {
    match next {
        Next::Done(decision, follow_up) => Done {
            decision,
            follow_up,
        },
        Next::Query(query) => panic!("all states are in one place: {query:?}"),
    }
}

pub(super) fn one() -> Check {
    Check::new(0, KEY, 1)
}

pub(super) fn fits(remaining: u64, reset_after: Tick) -> Assessment {
    Assessment::new(true, remaining, reset_after, Retry::Now)
}

pub(super) fn denied(reset_after: Tick, retry: Tick) -> Assessment {
    Assessment::new(false, 0, reset_after, Retry::after_micros(retry))
}

pub(super) fn tracked(units: u64, generation: u64) -> Option<Grant> {
    Some(Grant::Tracked { units, generation })
}

/// A bucket with a lease of one key.
pub(super) fn leased_bucket(grant: Option<Grant>) -> Subject {
    let subject = Subject::new(Quota::gcra(6_000, MINUTE), LEASED);
    subject.known(fits(5_000, 500_000), grant);
    subject
}

pub(super) fn receipt(check: Check, decision: &Decision) -> Hold {
    decision.verdicts()[0].hold(check, decision.at())
}
