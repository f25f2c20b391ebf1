//! One rule, in memory and on a server.

use std::{sync::Arc, time::Duration};

use crate::{
    keys::keyspace::{Keyspace, Partition},
    script::{args::ScriptCall, encoder::Encoder, reply::ScriptReply},
};
use tollgate_core::{
    Check, Decision, ManualClock, MemoryStore, Rule, RuleSet, Store as _,
    store::{Fingerprint, Hold, RuleStore, Settlement},
};
use tollgate_test_servers::redis_client::Integers as _;

use crate::internal_tests::parity::{expected::Expected, server::Server};

const MARGIN: Duration = Duration::from_secs(10_000_000_000);

#[derive(Debug)]
pub(crate) struct Pair {
    server: Server,
    clock: ManualClock,
    memory: MemoryStore,
}

/// The rule as it is at a time.
#[derive(Debug)]
pub(crate) struct Bound {
    memory: Arc<dyn RuleStore>,
    encoder: Encoder,
}

pub(crate) fn check(cost: u64) -> Check {
    Check::new(0, Fingerprint::from_bits(7), cost)
}

impl Pair {
    pub(crate) fn new() -> Self {
        let clock = ManualClock::new(0);
        Self {
            server: Server::start(),
            memory: MemoryStore::builder().clock(&clock).build(),
            clock,
        }
    }

    pub(crate) fn bind(&self, rule: Rule) -> Bound {
        let rules = Arc::new(RuleSet::new([rule]).expect("a valid rule"));
        let keyspace = Keyspace::new("tg", Partition::Key).expect("letters");
        Bound {
            encoder: Encoder::new(&rules, keyspace).expect("no plans"),
            memory: self.memory.bind(rules).expect("a valid rule"),
        }
    }

    /// Asks both, compares them, and gives the decision.
    pub(crate) fn acquire(&mut self, bound: &Bound, now: u64, cost: u64) -> Decision {
        self.clock.set(now);
        let checks = vec![check(cost)];
        let decision = bound.memory.acquire(&checks).ready().expect("at once");
        let mut call = ScriptCall::at(now, MARGIN);
        let layout = call.acquire(&bound.encoder, &checks);
        let reply = self.send(&call);
        let layout = layout.expect("there is room");
        let by_script = reply.decision(&layout, &checks, bound.memory.rules());
        let expected = Expected {
            step: now,
            checks: &checks,
            rules: bound.memory.rules(),
            decision: decision.clone(),
        };
        expected.compare(&by_script, 0);
        decision
    }

    /// Gives units back to both, whether they were taken so or not. Both say how many units lapse of a place.
    pub(crate) fn cancel(&mut self, bound: &Bound, now: u64, receipt: Hold) -> u64 {
        self.clock.set(now);
        let before = bound.memory.lapsed_units(0);
        bound.memory.settle(&[receipt], Settlement::Cancel);
        let lapsed = bound.memory.lapsed_units(0) - before;
        let mut call = ScriptCall::at(now, MARGIN);
        assert!(call.settle(&bound.encoder, &receipt, Settlement::Cancel));
        let reply = self.send(&call);
        if receipt.before.is_some() {
            assert_eq!(reply.lapsed_units(0), Some(lapsed));
        }
        lapsed
    }

    fn send(&mut self, call: &ScriptCall) -> ScriptReply {
        let integers = self.server.run(call).integers();
        ScriptReply::new(call.checks(), integers).expect("a whole reply")
    }
}
