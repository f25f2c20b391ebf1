//! Requests that travel to Redis together are decided as if each were alone.

mod support;

use std::{sync::Arc, time::Duration};

use tollgate_core::{
    Check, Decision, Fingerprint, Key, Limiter, MINUTE, Outcome, Quota, Rule, RuleSet, Step, Store,
};
use tollgate_redis::RedisStore;

use crate::support::{
    blocking_server::RedisServer,
    resp::{Resp, Value},
};

/// Clients that ask at once. Their calls wait until the test does, and so go out together.
const CLIENTS: u128 = 20;

struct Subject {
    _server: RedisServer,
    connection: Resp,
    store: RedisStore,
}

impl Subject {
    async fn start() -> Self {
        let server = RedisServer::start(&[]);
        let address = format!("redis://127.0.0.1:{}", server.port());
        let store = RedisStore::builder(&address, "together", tollgate_redis::Keys::plain())
            .and_then(|builder| builder.deadline(Duration::from_secs(20)))
            .and_then(|builder| builder.connect())
            .expect("a valid address, a deadline and a runtime");
        store.connected().await;
        Self {
            connection: Resp::connect(server.address()),
            _server: server,
            store,
        }
    }

    /// How many calls of the script the server ran since the last time.
    fn calls(&mut self) -> u64 {
        let Value::Bytes(stats) = self.connection.say("INFO commandstats") else {
            panic!("statistics are a text");
        };
        let stats = String::from_utf8(stats).expect("a text");
        self.connection.say("CONFIG RESETSTAT");
        let calls = |command: &str| {
            let line = stats.lines().find_map(|line| line.strip_prefix(command))?;
            line.split(',').next()?.parse::<u64>().ok()
        };
        calls("cmdstat_evalsha:calls=").unwrap_or(0)
    }
}

async fn all<T>(steps: Vec<Step<T>>) -> Vec<T> {
    let mut answers = Vec::new();
    for step in steps {
        answers.push(step.await);
    }
    answers
}

fn remaining(decisions: &[Decision]) -> Vec<u64> {
    let first = |decision: &Decision| decision.verdicts()[0].remaining();
    decisions.iter().map(first).collect()
}

#[tokio::test]
async fn a_value_that_is_not_ours_fails_only_the_request_that_met_it() {
    let mut subject = Subject::start().await;
    let rules = [
        Rule::new("rate", Quota::gcra(10, MINUTE)),
        Rule::new("window", Quota::fixed_window(10, MINUTE)),
    ];
    let rules = Arc::new(RuleSet::new(rules).expect("valid rules"));
    let bound = subject.store.bind(rules).expect("rules it can serve");
    let checks = |client| [0, 1].map(|rule| Check::new(rule, Fingerprint::from_bits(client), 1));
    assert!(bound.acquire(&checks(7)).await.is_allowed());
    let Value::List(keys) = subject.connection.say("KEYS *:rate:*") else {
        panic!("keys are a list");
    };
    let [Value::Bytes(key)] = &keys[..] else {
        panic!("{keys:?}");
    };
    let key = str::from_utf8(key).expect("a key is text");
    subject.connection.say(&format!("DEL {key}"));
    subject.connection.say(&format!("LPUSH {key} foreign"));
    subject.calls();

    let asked = (0..CLIENTS).map(|client| bound.acquire(&checks(client)));
    let decisions = all(asked.collect()).await;

    for (client, decision) in decisions.iter().enumerate() {
        let outcomes: Vec<_> = decision.verdicts().iter().map(|it| it.outcome()).collect();
        match client {
            7 => assert_eq!(outcomes[0], Outcome::Failed),
            _ => assert_eq!(outcomes, [Outcome::Allow; 2], "client {client}"),
        }
    }
    assert_eq!(subject.calls(), 2, "40 checks, of which 32 travel together");
}

#[tokio::test]
async fn takes_settlements_and_resets_travel_together_and_are_made_in_order() {
    let mut subject = Subject::start().await;
    let rule = Rule::new("api", Quota::gcra(10, MINUTE));
    let limiter = Limiter::new(subject.store.clone(), [rule]).expect("a rule it can serve");
    let keys: Vec<_> = (0..CLIENTS as u64)
        .map(|client| Key::of([client.to_string()]))
        .collect();
    let checks: Vec<_> = keys
        .iter()
        .map(|key| limiter.check("api", key).expect("a rule"))
        .collect();
    let take = |check: &Check| limiter.acquire(&[check.with_cost(3)]);
    let decisions = all(checks.iter().map(take).collect()).await;
    assert_eq!(remaining(&decisions), [7; CLIENTS as usize]);
    subject.calls();

    for (check, decision) in checks.iter().zip(&decisions).skip(1) {
        limiter.ticket(&[check.with_cost(3)], decision).refund(2);
    }
    let reset = limiter.reset("api", &keys[0]);
    let decisions = all(checks[..10]
        .iter()
        .map(|check| limiter.peek(&[check.with_cost(0)]))
        .collect())
    .await;
    reset.expect("a rule").await.expect("it is forgotten");

    assert_eq!(remaining(&decisions)[..2], [10, 9]);
    assert_eq!(remaining(&decisions)[2..], [9; 8]);
    assert_eq!(subject.calls(), 1);
}
