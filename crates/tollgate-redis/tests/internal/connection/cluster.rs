//! A real cluster, whose servers come and go.

use std::time::Duration;

use tollgate_test_servers::redis_cluster::RedisCluster;

use crate::{
    internal_tests::connection::{
        bench::calls_of,
        cluster_bench::{ClusterBench, keys},
    },
    keys::keyspace::{HASH_SLOTS, hash_slot},
};

#[tokio::test]
async fn every_slot_is_served_from_one_seed_and_slots_are_where_servers_say() {
    let cluster = RedisCluster::start().await;
    let bench = ClusterBench::start_with(&cluster.url_of([4]), |options| {
        options.deadline = Duration::from_secs(10);
    });
    bench.is_well(&keys()).await;
    let mut by_slot = vec![None; HASH_SLOTS];
    let mut empty = HASH_SLOTS;
    for key in (0..1_000_000).map(|number| format!("slot-{number}")) {
        let place = &mut by_slot[usize::from(hash_slot(key.as_bytes()))];
        if place.is_none() {
            *place = Some(key);
            empty -= 1;
            if empty == 0 {
                break;
            }
        }
    }
    let keys: Vec<_> = by_slot.into_iter().flatten().collect();
    assert_eq!(keys.len(), HASH_SLOTS);
    for keys in keys.chunks(1_000) {
        for answer in bench.take_all(keys).await {
            assert_eq!(answer.unwrap(), 1);
        }
    }
    for key in [
        "{user1000}.following",
        "foo{}{bar}",
        "foo{{bar}}zap",
        "foo{bar}{zap}",
        "foo{bar",
        "foo}{bar}",
        "a",
    ] {
        let answer = cluster.say(0, &["CLUSTER", "KEYSLOT", key]).await;
        assert_eq!(
            answer,
            format!(":{}\r\n", hash_slot(key.as_bytes())),
            "{key}"
        );
    }
    // A third each, and no server had to say that a key has moved.
    for number in 0..3 {
        assert!(calls_of(cluster.server(number), "evalsha").await > 5_000);
    }
    for number in 3..6 {
        assert_eq!(calls_of(cluster.server(number), "evalsha").await, 0);
    }
    assert_eq!(bench.places().len(), 3);
}
