//! A cluster loses a primary, or changes it.

use tollgate_test_servers::{eventually::eventually, redis_cluster::RedisCluster};
use tollgate_test_services::{held::Held, rules::RULES, service::Service};

/// A namespace whose states are all at this primary.
async fn namespace(cluster: &RedisCluster, primary: usize) -> String {
    for number in 0_u32.. {
        let name = format!("shop-{number}");
        if cluster.slot(&format!("{{{name}}}")).await.1 == primary {
            return name;
        }
    }
    unreachable!("a third of all names is there");
}

/// A service with its states at this primary.
async fn service(cluster: &RedisCluster, primary: usize) -> Service {
    Service::named(&namespace(cluster, primary).await, &cluster.url()).await
}

#[tokio::test]
async fn a_primary_that_is_killed_takes_only_its_states_along_and_its_replica_brings_them_back() {
    let mut cluster = RedisCluster::start().await;
    let mut lost = service(&cluster, 1).await;
    let mut other = service(&cluster, 2).await;
    let held = Held::start(&cluster.url(), &namespace(&cluster, 1).await).await;
    lost.recovers("the start").await;
    other.recovers("the start").await;
    cluster.is_replicated(1).await;
    cluster.server_mut(1).kill();
    lost.feels_it().await;
    // Another shard is asked as before.
    let before = other.denied();
    eventually("the other shard decides", || async {
        let now = other.denied();
        assert_eq!(now.len(), RULES * other.instances.len());
        now.iter()
            .zip(&before)
            .all(|(now, before)| now > before)
            .then_some(())
    })
    .await;
    eventually("the replica takes over", || async {
        let promoted = cluster.server(4).is_in_role("master").await;
        promoted.then_some(())
    })
    .await;
    lost.recovers("the fail-over").await;
    held.survived().await;
    cluster.server_mut(1).restart().await;
    cluster.is_whole().await;
    lost.recovers("the return of the old primary").await;
    lost.end().await;
    other.end().await;
}

#[tokio::test]
async fn a_planned_failover_of_a_shard_costs_nothing() {
    let cluster = RedisCluster::start().await;
    let mut service = service(&cluster, 0).await;
    let (mut primary, mut replica) = (0, 3);
    // Also while units are taken: the primary waits until its replica was told of all.
    for _ in 0..2 {
        cluster.say(replica, &["CLUSTER", "FAILOVER"]).await;
        eventually("they change places", || async {
            let changed = cluster.server(replica).is_in_role("master").await
                && cluster.server(primary).is_in_role("slave").await;
            changed.then_some(())
        })
        .await;
        cluster.is_whole().await;
        service.recovers("the fail-over").await;
        std::mem::swap(&mut primary, &mut replica);
    }
    service.end().await;
}
