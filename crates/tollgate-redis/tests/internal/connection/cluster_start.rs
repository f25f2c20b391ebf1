//! Clusters that are not there yet, or are none.

use tollgate_test_servers::{redis_cluster::RedisCluster, redis_server::RedisServer};

use crate::{
    connection::{breaker::BreakerState, error::CallErrorKind, options::NodeEvent},
    internal_tests::connection::{
        bench::eventually,
        cluster_bench::{ClusterBench, keys},
    },
};

#[tokio::test]
async fn a_cluster_that_is_restarted_as_a_whole_is_found_again_also_by_who_comes_first() {
    let mut cluster = RedisCluster::start().await;
    let bench = ClusterBench::start(&cluster.url());
    bench.is_well(&keys()).await;
    for server in cluster.servers_mut() {
        server.kill();
    }
    let early = ClusterBench::start(&cluster.url());
    eventually("nobody can say what the map is", || async {
        let tried = |event: &NodeEvent| matches!(event, NodeEvent::NotLearnt(_));
        (early.count_events(tried) > 0).then_some(())
    })
    .await;
    for bench in [&bench, &early] {
        eventually("the loss is noticed", || async {
            let error = bench.take("key-1").await.err()?;
            (error.kind() == CallErrorKind::Unavailable).then_some(())
        })
        .await;
    }
    for server in cluster.servers_mut() {
        server.restart().await;
    }
    cluster.is_whole().await;
    bench.is_well(&keys()).await;
    early.is_well(&keys()).await;
    let closed = || async {
        let primaries = &bench.cluster.map().primaries;
        let mut states = primaries.iter().map(|it| it.node.breaker());
        states
            .all(|state| state == BreakerState::Closed)
            .then_some(())
    };
    eventually("all breakers are closed", closed).await;
}

#[tokio::test]
async fn what_is_no_cluster_is_named_and_learnt_later() {
    let server = RedisServer::start(&[]).await;
    let bench = ClusterBench::start(&server.url().replace("redis://", "redis-cluster://"));
    let error = eventually("it is no cluster", || async {
        let error = bench.take("k").await.err()?;
        error
            .to_string()
            .contains("cluster support disabled")
            .then_some(error)
    })
    .await;
    assert_eq!(error.kind(), CallErrorKind::Misconfigured);
}
