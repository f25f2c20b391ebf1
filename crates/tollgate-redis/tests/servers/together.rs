//! Requests that travel to Redis together are decided as if each were alone.

use std::time::Duration;

use redis::Value;
use tollgate_core::{
    Check, Consistency, Decision, Key, Limiter, MAX_PERIOD, MINUTE, Quota, Rule, Step,
};
use tollgate_redis::{Keys, RedisStore};
use tollgate_test_servers::{blocking_server::RedisServer, redis_client::RedisClient};

struct Subject {
    _server: RedisServer,
    connection: RedisClient,
    store: RedisStore,
}

impl Subject {
    async fn start() -> Self {
        let server = RedisServer::start(&[]);
        Self {
            connection: RedisClient::connect(server.address()),
            store: store(&server).await,
            _server: server,
        }
    }

    /// How many calls of the script the server ran since the last time.
    fn calls(&mut self) -> u64 {
        let Value::BulkString(stats) = self.connection.say("INFO commandstats") else {
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

async fn store(server: &RedisServer) -> RedisStore {
    let address = format!("redis://127.0.0.1:{}", server.port());
    let store = RedisStore::builder(&address, "together", Keys::plain())
        .deadline(Duration::from_secs(20))
        // Only the test may call.
        .without_heartbeats()
        .connect()
        .expect("a valid address, a deadline and a runtime");
    store.connected().await;
    store
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
async fn unreported_usage_of_each_client_travels_before_its_request_in_the_call_of_all() {
    let mut subject = Subject::start().await;
    let eventual = Consistency::Eventual {
        interval: 60 * MINUTE,
        max_unreported: 5,
    };
    let rule = Rule::new("api", Quota::fixed_window(100, MAX_PERIOD)).consistency(eventual);
    let limiter = Limiter::new(subject.store.clone(), [rule]).expect("a rule it can serve");
    let checks: Vec<_> = (0..10)
        .map(|client| limiter.check("api", &Key::of([client.to_string()])))
        .map(|check| check.expect("a rule"))
        .collect();
    let all_take = async |units: u64| {
        let take = |check: &Check| limiter.acquire(&[check.with_cost(units)]);
        remaining(&all(checks.iter().map(take).collect()).await)
    };
    // A client is known from its second request on.
    for left in [99, 98] {
        assert_eq!(all_take(1).await, [left; 10]);
    }
    subject.calls();
    for left in [96, 94] {
        assert_eq!(all_take(2).await, [left; 10]);
    }
    assert_eq!(subject.calls(), 0);
    assert_eq!(all_take(10).await, [84; 10]);
    assert_eq!(subject.calls(), 1);
    assert_eq!(all_take(1).await, [83; 10]);
    assert_eq!(subject.calls(), 0);
}
