//! Hash slots that move from one server to another while they are asked for.

use std::time::Duration;

use tollgate_test_servers::{moving_slot::MovingSlot, redis_cluster::RedisCluster};

use crate::{
    connection::{
        command::{Command, Script},
        error::CallErrorKind,
        resp::Value,
    },
    internal_tests::connection::{bench::eventually, cluster_bench::ClusterBench},
    keys::keyspace::hash_slot,
};

/// A hash slot of server 0.
const TAG: &str = "moving";

fn tagged(what: &str, count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("{{{TAG}}}{what}-{number}"))
        .collect()
}

/// The hash slot of `TAG` goes to another server.
async fn begin(cluster: &RedisCluster, to: usize) -> MovingSlot<'_> {
    let hash_slot = hash_slot(TAG.as_bytes());
    MovingSlot::begin(cluster, hash_slot, RedisCluster::first_owner(hash_slot), to).await
}

#[tokio::test]
async fn calls_that_would_travel_together_are_sent_on_alone_and_each_runs_once() {
    // Answers as the script that decides does: the time, and three numbers for each check.
    static SCRIPT: Script = Script::new(
        "local out = {0} \
         for i = 2, #ARGV do \
           local low, high = string.byte(ARGV[i], 4, 5) \
           out[#out + 1] = redis.call('INCR', KEYS[low + 256 * high]) \
           out[#out + 1] = 0 \
           out[#out + 1] = 0 \
         end \
         return out",
    );
    const FIRST_KEY: &[u8] = &[0, 0, 0, 1, 0];
    let cluster = RedisCluster::start_patient().await;
    let bench = ClusterBench::start_with(&cluster.url(), |options| {
        options.deadline = Duration::from_secs(10);
    });
    let (old, new) = (tagged("old", 50), tagged("new", 50));
    let count_each = async |keys: &[String], expected: &dyn Fn(&str) -> i64| {
        let calls = keys.iter().map(|key| {
            let args = [&b""[..], FIRST_KEY];
            (bench.cluster).call(Command::by_hand(&SCRIPT, &[key], &args, &[3]))
        });
        let calls: Vec<_> = calls.collect();
        for (key, call) in keys.iter().zip(calls) {
            let numbers = [0, expected(key), 0, 0].into();
            assert_eq!(call.await.unwrap(), Value::Integers(numbers), "{key}");
        }
    };
    let count_all = async |keys: &[String], expected: i64| count_each(keys, &|_| expected).await;
    bench.is_well(&tagged("warm", 1)).await;
    count_all(&old, 1).await;
    let from = RedisCluster::first_owner(hash_slot(TAG.as_bytes()));
    let moving = begin(&cluster, (from + 1) % 3).await;
    // In one go, and so in one command until the server refuses that.
    for round in 1..=10 {
        count_all(&old, round + 1).await;
        count_all(&new, round).await;
    }
    let mixed: Vec<_> = (old.iter().zip(tagged("newer", 50)))
        .flat_map(|(old, newer)| [old.clone(), newer])
        .collect();
    count_each(&mixed, &|key| if key.contains("old") { 12 } else { 1 }).await;
    moving.finish().await;
    count_all(&old, 13).await;
    count_all(&new, 11).await;
}

#[tokio::test]
async fn a_server_that_is_in_no_map_yet_is_connected_when_a_slot_moves_there() {
    let mut cluster = RedisCluster::start_patient().await;
    let bench = ClusterBench::start(&cluster.url());
    let (old, new) = (tagged("old", 5), tagged("new", 5));
    bench.is_well(&old).await;
    let added = cluster.add().await;
    cluster.meet(added).await;
    cluster.until_all_know("cluster_known_nodes:7").await;
    // Who does not know whose hash slot it is will not take it over.
    cluster.until_all_know("cluster_slots_assigned:16384").await;
    let moving = begin(&cluster, added).await;
    let error = bench.take(&new[0]).await.unwrap_err();
    assert_eq!(error.kind(), CallErrorKind::Unavailable, "{error}");
    eventually("it is connected", || async {
        bench.take(&new[0]).await.ok()
    })
    .await;
    for answer in bench.take_all(&new).await {
        answer.unwrap();
    }
    moving.finish().await;
    bench.is_well(&old).await;
    bench.is_well(&new).await;
}
