//! The script on a server: what it writes, what it makes of values that are not its own, and what one call carries.

mod calendars;
mod calls;
mod foreign;
mod grants;
mod heartbeat;
mod owed;
mod refused;
mod runs;
mod written;

use std::{sync::Arc, time::Duration};

use crate::{
    internal_tests::scripted::{connect, run},
    keys::keyspace::{Keyspace, Partition},
    script::{args::ScriptCall, encoder::Encoder, reply::ScriptReply},
};
use redis::Value;
use tollgate_core::{Check, Decision, Quota, Rule, RuleSet, SECOND, store::Fingerprint};
use tollgate_test_servers::{
    blocking_server::RedisServer,
    redis_client::{Integers as _, RedisClient},
};

const NOW: u64 = 1_700_000_123_456_789;
const MARGIN: Duration = Duration::from_secs(1_000);

/// Ten units a second under every algorithm.
const QUOTAS: [Quota; 5] = ten_per(SECOND);

const fn ten_per(period: Duration) -> [Quota; 5] {
    [
        Quota::gcra(10, period),
        Quota::fixed_window(10, period),
        Quota::sliding_window(10, period),
        Quota::sliding_log(10, period),
        Quota::sliding_buckets(10, period),
    ]
}

/// A rule set with the script on a server of its own.
#[derive(Debug)]
struct Subject {
    _server: RedisServer,
    connection: RedisClient,
    /// Sees each command that the server runs, those of the script too.
    monitor: RedisClient,
    rules: Arc<RuleSet>,
    encoder: Encoder,
}

impl Subject {
    fn new(rules: impl IntoIterator<Item = Rule>) -> Self {
        let server = RedisServer::start(&[]);
        let rules = Arc::new(RuleSet::new(rules).expect("valid rules"));
        let mut monitor = RedisClient::connect(server.address());
        assert_eq!(monitor.say("MONITOR"), Value::Okay);
        Self {
            connection: connect(server.address()),
            _server: server,
            monitor,
            encoder: {
                let keyspace = Keyspace::new("tg", Partition::Key).expect("letters");
                Encoder::new(&rules, keyspace).expect("few plans")
            },
            rules,
        }
    }

    /// A check of the rule at a place.
    fn check(rule: u16, cost: u64) -> Check {
        Check::new(rule, Fingerprint::from_bits(7), cost)
    }

    fn key(&self, rule: u16) -> Vec<u8> {
        let mut call = ScriptCall::new();
        assert!(call.reset(&self.encoder, rule, Fingerprint::from_bits(7)));
        call.keys().next().expect("one").to_vec()
    }

    fn send(&mut self, call: &ScriptCall) -> Value {
        run(&mut self.connection, call)
    }

    /// A request alone in its call.
    fn acquire(&mut self, now: u64, checks: &[Check]) -> Decision {
        let mut call = ScriptCall::at(now, MARGIN);
        let layout = call.acquire(&self.encoder, checks).expect("there is room");
        let reply = self.send(&call).integers();
        let reply = ScriptReply::new(call.checks(), reply).expect("a whole reply");
        reply.decision(&layout, checks, &self.rules)
    }

    /// What the script wrote since the last time: the words of its SET, SETRANGE and DEL commands, but for states.
    fn written(&mut self) -> Vec<String> {
        self.connection.say("ECHO until-here");
        let mut written = Vec::new();
        loop {
            let Value::SimpleString(line) = self.monitor.answer() else {
                panic!("a monitor tells commands");
            };
            if line.ends_with("\"ECHO\" \"until-here\"") {
                return written;
            }
            if line.contains(" lua] \"DEL\"") {
                written.push("DEL".into());
            } else if line.contains(" lua] \"SETRANGE\"") {
                written.push("SETRANGE".into());
            } else if line.contains(" lua] \"SET\"") {
                let last = line.rsplit(' ').next().unwrap_or_default();
                let last = last.trim_matches('"');
                let px = if last == "KEEPTTL" { "" } else { "PX " };
                written.push(format!("SET {px}{last}"));
            }
        }
    }
}

/// A rule for each algorithm.
fn every_algorithm() -> impl Iterator<Item = Rule> {
    every_algorithm_per(SECOND)
}

fn every_algorithm_per(period: Duration) -> impl Iterator<Item = Rule> {
    let quotas = ten_per(period).into_iter().enumerate();
    quotas.map(|(place, quota)| Rule::new(format!("rule-{place}"), quota))
}
