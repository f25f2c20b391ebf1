//! A cluster with what happens to it, and a count of what every key was told.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex},
    time::Duration,
};

use tollgate_test_servers::{redis_cluster::RedisCluster, redis_server::RedisServer};

use crate::{
    connection::{
        cluster::{routed::ClusterCall, router::Cluster},
        error::CallError,
        event::NodeEvent,
        options::NodeOptions,
        script::Script,
        value::Value,
    },
    internal_tests::connection::bench::{eventually, quick},
    keys::slot::slot,
};

pub(super) struct ClusterBench {
    pub(super) cluster: Cluster,
    events: Arc<Mutex<Vec<NodeEvent>>>,
    script: Arc<Script>,
    reported: Mutex<BTreeMap<String, Counted>>,
}

/// What became of the calls for one key.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    answered: u64,
    unknown: u64,
}

/// Longer than any machine takes to run a task that is ready, however busy it is.
const SLACK: Duration = Duration::from_secs(20);

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
            reported: Mutex::default(),
        }
    }

    pub(super) fn call(&self, key: &str) -> ClusterCall {
        self.cluster.call(&self.script, &[key], &["1"])
    }

    /// Takes one unit of `key`, and notes what became of it.
    pub(super) async fn take(&self, key: &str) -> Result<i64, CallError> {
        let call = self.call(key);
        self.note(key, call).await
    }

    /// One unit of each key, all at once.
    pub(super) async fn take_all(&self, keys: &[String]) -> Vec<Result<i64, CallError>> {
        let calls: Vec<_> = keys.iter().map(|key| (key, self.call(key))).collect();
        let mut answers = Vec::new();
        for (key, call) in calls {
            answers.push(self.note(key, call).await);
        }
        answers
    }

    async fn note(&self, key: &str, call: ClusterCall) -> Result<i64, CallError> {
        let answer = tokio::time::timeout(SLACK, call).await;
        let answer = answer.expect("a call ends shortly after its deadline");
        let mut reported = self.reported.lock().unwrap();
        let reported = reported.entry(key.to_owned()).or_default();
        match answer {
            Ok(Value::Integer(count)) => {
                reported.answered += 1;
                Ok(count)
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => {
                reported.unknown += u64::from(error.may_have_run());
                Err(error)
            }
        }
    }

    /// Takes units of each key until all of them are answered in one go.
    pub(super) async fn is_well(&self, keys: &[String]) {
        eventually("all keys are answered", || async {
            let answers = self.take_all(keys).await;
            answers.iter().all(Result::is_ok).then_some(())
        })
        .await;
    }

    /// Asserts that each answered call ran once, and others at most once.
    pub(super) async fn nothing_ran_twice(&self, servers: &[&RedisServer]) {
        let reported = self.reported.lock().unwrap().clone();
        for (key, reported) in reported {
            let ran = eventually("a server has the key", || count(servers, &key)).await;
            let possible = reported.answered..=reported.answered + reported.unknown;
            assert!(possible.contains(&ran), "{key}: {ran} times, {reported:?}");
        }
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

/// How often the script ran on `key`, by the server that has it now.
async fn count(servers: &[&RedisServer], key: &str) -> Option<u64> {
    for server in servers {
        let answer = server.command(&["GET", key]).await;
        match answer.split("\r\n").collect::<Vec<_>>()[..] {
            [first, number, ..] if first.starts_with('$') => {
                return Some(number.parse().unwrap_or(0));
            }
            _ => {}
        }
    }
    None
}

/// So many keys, in slots that server `owner` had in the beginning.
pub(super) fn keys_of(owner: usize, numbers: Range<u32>) -> Vec<String> {
    let mut wanted = numbers.len();
    let keys = (numbers.start..).map(|number| format!("key-{number}"));
    keys.filter(|key| RedisCluster::first_owner(slot(key.as_bytes())) == owner)
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
