//! A cluster with what happens to it, and a script that counts how often it runs.

use std::{ops::Range, time::Duration};

use tollgate_test_servers::redis_cluster::RedisCluster;

use crate::{
    connection::{
        cluster::router::Cluster,
        command::Command,
        error::CallError,
        node::AnswerFuture,
        options::{NodeEvent, NodeOptions},
    },
    internal_tests::connection::bench::{Events, INCREMENT, answer, answers, eventually},
    keys::keyspace::hash_slot,
};

pub(super) struct ClusterBench {
    pub(super) cluster: Cluster,
    events: Events,
}

impl ClusterBench {
    /// A cluster whose calls have time enough for a busy machine.
    pub(super) fn start(url: &str) -> Self {
        Self::start_with(url, |_| {})
    }

    pub(super) fn start_with(url: &str, change: impl FnOnce(&mut NodeOptions)) -> Self {
        let events = Events::default();
        let mut options = NodeOptions {
            deadline: Duration::from_secs(1),
            longest_pause: Duration::from_millis(500),
            ..events.options()
        };
        change(&mut options);
        Self {
            cluster: Cluster::start(url.parse().unwrap(), options),
            events,
        }
    }

    pub(super) fn call(&self, key: &str) -> AnswerFuture {
        let command = Command::new(&INCREMENT, &[key], &["1"]);
        self.cluster.call(command)
    }

    /// Takes one unit of `key`.
    pub(super) async fn take(&self, key: &str) -> Result<i64, CallError> {
        answer(self.call(key)).await
    }

    /// One unit of each key, all at once.
    pub(super) async fn take_all(&self, keys: &[String]) -> Vec<Result<i64, CallError>> {
        answers(keys.iter().map(|key| self.call(key)).collect()).await
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
        let primaries = &self.cluster.map().primaries;
        let names = primaries.iter().map(|it| it.node.name().to_owned());
        let mut places: Vec<_> = names.collect();
        places.sort();
        places
    }

    pub(super) fn count_events(&self, wanted: impl Fn(&NodeEvent) -> bool) -> usize {
        self.events.count(wanted)
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
