//! A cluster with what happens to it, and a script that counts how often it runs.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
    time::Duration,
};

use tollgate_test_servers::redis_cluster::RedisCluster;

use crate::{
    connection::{
        cluster::router::Cluster,
        command::Script,
        error::CallError,
        node::AnswerFuture,
        options::{NodeEvent, NodeOptions},
        resp::Value,
    },
    internal_tests::connection::bench::{eventually, quick},
    keys::keyspace::hash_slot,
};

pub(super) struct ClusterBench {
    pub(super) cluster: Cluster,
    events: Arc<Mutex<Vec<NodeEvent>>>,
    script: Arc<Script>,
}

/// Longer than any machine takes to run a task that is ready, however busy it is.
const SLACK: Duration = Duration::from_secs(60);

impl ClusterBench {
    /// A cluster whose calls have time enough for a busy machine.
    pub(super) fn start(url: &str) -> Self {
        Self::start_with(url, |_| {})
    }

    pub(super) fn start_with(url: &str, change: impl FnOnce(&mut NodeOptions)) -> Self {
        let events = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&events);
        let mut options = NodeOptions {
            deadline: Duration::from_secs(1),
            longest_pause: Duration::from_millis(500),
            seed: 7,
            breaker: quick(),
            events: Arc::new(move |_, event| sink.lock().unwrap().push(event.clone())),
            ..NodeOptions::default()
        };
        change(&mut options);
        Self {
            cluster: Cluster::start(url.parse().unwrap(), options).unwrap(),
            events,
            script: Arc::new(Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])")),
        }
    }

    pub(super) fn call(&self, key: &str) -> AnswerFuture {
        self.cluster.call(&self.script, &[key], &["1"])
    }

    /// Takes one unit of `key`.
    pub(super) async fn take(&self, key: &str) -> Result<i64, CallError> {
        answer(self.call(key)).await
    }

    /// One unit of each key, all at once.
    pub(super) async fn take_all(&self, keys: &[String]) -> Vec<Result<i64, CallError>> {
        let calls: Vec<_> = keys.iter().map(|key| self.call(key)).collect();
        let mut answers = Vec::new();
        for call in calls {
            answers.push(answer(call).await);
        }
        answers
    }

    /// Takes units of each key until all of them are answered in one go.
    pub(super) async fn is_well(&self, keys: &[String]) {
        eventually("all keys are answered", || async {
            let answers = self.take_all(keys).await;
            answers.iter().all(Result::is_ok).then_some(())
        })
        .await;
    }

    pub(super) fn places(&self) -> Vec<String> {
        let states = self.cluster.breakers();
        let mut places: Vec<_> = states.iter().map(|(place, _)| place.to_string()).collect();
        places.sort();
        places
    }

    pub(super) fn count_events(&self, wanted: impl Fn(&NodeEvent) -> bool) -> usize {
        let events = self.events.lock().unwrap();
        events.iter().filter(|event| wanted(event)).count()
    }
}

async fn answer(call: AnswerFuture) -> Result<i64, CallError> {
    let answer = tokio::time::timeout(SLACK, call).await;
    match answer.expect("a call ends shortly after its deadline")? {
        Value::Integer(count) => Ok(count),
        other => panic!("{other:?}"),
    }
}

/// So many keys, in hash slots that server `owner` had in the beginning.
pub(super) fn keys_of(owner: usize, numbers: Range<u32>) -> Vec<String> {
    let mut wanted = numbers.len();
    let keys = (numbers.start..).map(|number| format!("key-{number}"));
    keys.filter(|key| RedisCluster::first_owner(hash_slot(key.as_bytes())) == owner)
        .take_while(|_| {
            let more = wanted > 0;
            wanted = wanted.saturating_sub(1);
            more
        })
        .collect()
}

/// Twenty keys of each.
pub(super) fn keys() -> Vec<String> {
    (0..3).flat_map(|owner| keys_of(owner, 0..20)).collect()
}
