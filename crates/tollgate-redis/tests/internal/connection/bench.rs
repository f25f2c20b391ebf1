//! A node with what happens to it, and a script that counts how often it runs.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::connection::{
    breaker::{BreakerOptions, BreakerState},
    command::{Command, Script},
    error::{CallError, CallErrorKind},
    node::{AnswerFuture, Node},
    options::{NodeEvent, NodeOptions},
    resp::Value,
};

pub(super) use tollgate_test_servers::eventually::eventually;
use tollgate_test_servers::redis_server::RedisServer;

/// Adds to a key, and so counts how often it runs.
pub(super) static INCREMENT: Script = Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])");

pub(super) struct Bench {
    pub(super) node: Node,
    events: Events,
}

/// What happens to a node or a cluster.
#[derive(Clone, Default)]
pub(super) struct Events(Arc<Mutex<Vec<NodeEvent>>>);

impl Events {
    /// Options with short pauses, which report to it.
    pub(super) fn options(&self) -> NodeOptions {
        let sink = self.clone();
        NodeOptions {
            longest_pause: Duration::from_millis(200),
            seed: 7,
            events: Arc::new(move |_, event| sink.0.lock().unwrap().push(event.clone())),
            breaker: quick(),
            ..NodeOptions::default()
        }
    }

    pub(super) fn count(&self, wanted: impl Fn(&NodeEvent) -> bool) -> usize {
        let events = self.0.lock().unwrap();
        events.iter().filter(|event| wanted(event)).count()
    }
}

/// A breaker with short pauses.
pub(super) fn quick() -> BreakerOptions {
    BreakerOptions {
        longest_pause: Duration::from_millis(500),
        ramp: Duration::from_millis(100),
        ..BreakerOptions::default()
    }
}

/// Longer than any machine takes to run a task that is ready, however busy it is.
const SLACK: Duration = Duration::from_secs(30);

impl Bench {
    /// A node with short pauses.
    pub(super) fn start(url: &str) -> Self {
        Self::start_with(url, |_| {})
    }

    pub(super) fn start_with(url: &str, change: impl FnOnce(&mut NodeOptions)) -> Self {
        let events = Events::default();
        let mut options = events.options();
        change(&mut options);
        Self {
            node: Node::start(url.parse().unwrap(), options),
            events,
        }
    }

    /// Takes one unit of `key`, and asserts that the answer comes when it has to.
    pub(super) async fn take(&self, key: &str) -> Result<i64, CallError> {
        answer(self.node.call(Command::new(&INCREMENT, &[key], &["1"]))).await
    }

    /// Takes units of `key`, all at once.
    pub(super) fn call(&self, key: &str, calls: usize) -> Vec<AnswerFuture> {
        (0..calls)
            .map(|_| self.node.call(Command::new(&INCREMENT, &[key], &["1"])))
            .collect()
    }

    /// As [`take`](Self::take), for what became of it.
    pub(super) async fn fails(&self, key: &str) -> CallErrorKind {
        match self.take(key).await {
            Ok(count) => panic!("it was answered: {count}"),
            Err(error) => error.kind(),
        }
    }

    /// Takes until one is sent and not answered in time. On a busy machine one may not even be sent in time.
    pub(super) async fn hears_nothing(&self, key: &str) {
        eventually("a call is sent in vain", || async {
            (self.fails(key).await == CallErrorKind::NoAnswer).then_some(())
        })
        .await;
    }

    /// Takes until one is answered.
    pub(super) async fn recovers(&self, key: &str) -> i64 {
        eventually("a call is answered", || async { self.take(key).await.ok() }).await
    }

    /// Takes until the breaker is open.
    pub(super) async fn opens(&self) {
        self.takes_until("k", BreakerState::Open).await;
    }

    /// Takes until the breaker is closed.
    pub(super) async fn closes(&self, key: &str) {
        self.takes_until(key, BreakerState::Closed).await;
    }

    async fn takes_until(&self, key: &str, state: BreakerState) {
        eventually(&format!("the breaker is {state:?}"), || async {
            let _ = self.take(key).await;
            (self.node.breaker() == state).then_some(())
        })
        .await;
    }

    /// Waits until the breaker is closed and a call is answered.
    pub(super) async fn is_well(&self) {
        self.closes("is-well").await;
        self.recovers("is-well").await;
    }

    pub(super) fn count(&self, wanted: impl Fn(&NodeEvent) -> bool) -> usize {
        self.events.count(wanted)
    }

    /// Waits for an event.
    pub(super) async fn happens(&self, what: &str, wanted: impl Fn(&NodeEvent) -> bool + Copy) {
        eventually(what, || async { (self.count(wanted) > 0).then_some(()) }).await;
    }
}

/// The answers to calls that were made at once.
pub(super) async fn answers(calls: Vec<AnswerFuture>) -> Vec<Result<i64, CallError>> {
    let mut answers = Vec::new();
    for call in calls {
        answers.push(answer(call).await);
    }
    answers
}

pub(super) async fn answer(call: AnswerFuture) -> Result<i64, CallError> {
    let answer = tokio::time::timeout(2 * SLACK, call).await;
    match answer.expect("a call ends shortly after its deadline") {
        Ok(Value::Integer(count)) => Ok(count),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error),
    }
}

/// How often the counting script ran on `key`.
pub(super) async fn count_of(server: &RedisServer, key: &str) -> u64 {
    let answer = server.command(&["GET", key]).await;
    match answer.split("\r\n").nth(1) {
        Some(number) if !number.is_empty() => number.parse().unwrap(),
        _ => 0,
    }
}

/// How often the server ran a command, by its own count.
pub(super) async fn calls_of(server: &RedisServer, command: &str) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]).await;
    let line = stats
        .lines()
        .find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.and_then(|line| line.split(',').next())
        .map_or(0, |number| number.parse().unwrap())
}
