//! A real cluster, whose servers come and go.

use std::{cell::Cell, time::Duration};

use tollgate_test_servers::redis_cluster::RedisCluster;

use crate::{
    connection::{cluster::event::ClusterEvent, error::CallErrorKind, event::NodeEvent},
    internal_tests::connection::{
        bench::{calls_of, eventually},
        cluster_bench::{ClusterBench, keys, keys_of},
    },
    keys::slot::{SLOTS, slot},
};

fn others(than: usize) -> Vec<String> {
    let others = (0..3).filter(|owner| *owner != than);
    others.flat_map(|owner| keys_of(owner, 0..20)).collect()
}

/// Takes units of the keys again and again until `until` is ready, and asserts that each is answered.
async fn undisturbed(bench: &ClusterBench, keys: &[String], until: impl Future<Output = ()>) {
    let ended = Cell::new(false);
    let until = async {
        until.await;
        ended.set(true);
    };
    let calls = async {
        while !ended.get() {
            for answer in bench.take_all(keys).await {
                answer.expect("the other shards are undisturbed");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::join!(until, calls);
}

#[tokio::test]
async fn every_slot_is_served_from_one_seed_and_slots_are_where_servers_say() {
    let cluster = RedisCluster::start().await;
    let bench = ClusterBench::start_with(&cluster.url_of([4]), |options| {
        options.node.deadline = Duration::from_secs(10);
    });
    bench.is_well(&keys()).await;
    let mut by_slot = vec![None; SLOTS];
    let mut empty = SLOTS;
    for key in (0..1_000_000).map(|number| format!("slot-{number}")) {
        let place = &mut by_slot[usize::from(slot(key.as_bytes()))];
        if place.is_none() {
            *place = Some(key);
            empty -= 1;
            if empty == 0 {
                break;
            }
        }
    }
    let keys: Vec<_> = by_slot.into_iter().flatten().collect();
    assert_eq!(keys.len(), SLOTS);
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
        "a",
    ] {
        let answer = cluster.say(0, &["CLUSTER", "KEYSLOT", key]).await;
        assert_eq!(answer, format!(":{}\r\n", slot(key.as_bytes())), "{key}");
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

#[tokio::test]
async fn a_replica_that_is_killed_is_not_missed() {
    let mut cluster = RedisCluster::start().await;
    let bench = ClusterBench::start(&cluster.url());
    bench.is_well(&keys()).await;
    cluster.server_mut(4).kill();
    let noticed = async {
        eventually("the others notice", || async {
            let nodes = cluster.say(0, &["CLUSTER", "NODES"]).await;
            nodes.contains("slave,fail ").then_some(())
        })
        .await;
    };
    undisturbed(&bench, &keys(), noticed).await;
    let lost =
        |event: &ClusterEvent| matches!(event, ClusterEvent::Node(_, NodeEvent::Lost { .. }));
    assert_eq!(bench.count_events(lost), 0);
    let servers = [0, 1, 2].map(|number| cluster.server(number));
    bench.nothing_ran_twice(&servers).await;
}

#[tokio::test]
async fn a_primary_that_stands_still_is_replaced_and_its_return_runs_nothing_twice() {
    let cluster = RedisCluster::start().await;
    let bench = ClusterBench::start(&cluster.url());
    bench.is_well(&keys()).await;
    cluster.is_replicated(0).await;
    cluster.server(0).stop();
    let lost = keys_of(0, 0..20);
    undisturbed(&bench, &others(0), async {
        eventually("a call is sent in vain", || async {
            let error = bench.take(&lost[0]).await.err()?;
            (error.kind() == CallErrorKind::Unknown).then_some(())
        })
        .await;
        bench.is_well(&lost).await;
    })
    .await;
    cluster.server(0).resume();
    cluster.is_whole().await;
    bench.is_well(&keys()).await;
    let servers = [3, 1, 2].map(|number| cluster.server(number));
    bench.nothing_ran_twice(&servers).await;
}
