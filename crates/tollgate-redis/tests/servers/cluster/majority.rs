//! A primary is cut off from the others.

use tollgate_test_servers::{eventually::eventually, redis_cluster::RedisCluster};
use tollgate_test_services::service::Service;

#[tokio::test]
async fn a_primary_that_sees_no_majority_refuses_and_nothing_is_lost() {
    let cluster = RedisCluster::start().await;
    let (_, primary) = cluster.slot("{faults}").await;
    let mut service = Service::start(&cluster.url()).await;
    service.recovers("the start").await;
    let others: Vec<_> = (0..6).filter(|server| *server != primary).collect();
    for other in &others {
        cluster.server(*other).stop();
    }
    service.feels_it().await;
    eventually("it says that the cluster is down", || async {
        let info = cluster.say(primary, &["CLUSTER", "INFO"]).await;
        info.contains("cluster_state:fail").then_some(())
    })
    .await;
    for other in &others {
        cluster.server(*other).resume();
    }
    cluster.is_whole().await;
    service.recovers("the cut").await;
    service.end().await;
}

#[tokio::test]
async fn a_primary_that_is_cut_off_refuses_before_its_replica_takes_over() {
    let cluster = RedisCluster::start().await;
    let (_, primary) = cluster.slot("{faults}").await;
    let mut service = Service::start(&cluster.url()).await;
    // Units are taken while it is cut off: its replica is told of all until it is promoted.
    cluster.cut_off(primary).await;
    service.feels_it().await;
    eventually("the replica takes over", || async {
        let promoted = cluster.server(primary + 3).is_in_role("master").await;
        promoted.then_some(())
    })
    .await;
    // The old one still says that the slot is its own, and is not believed.
    service.recovers("the cut").await;
    cluster.join();
    cluster.is_whole().await;
    service.recovers("the end of the cut").await;
    service.end().await;
}
