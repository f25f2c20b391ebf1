//! A user with no more rights than it needs, on all servers of a cluster.

use std::time::Duration;

use tollgate_core::{Key, Limiter, MAX_PERIOD, Quota, Rule, StoreError};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{
    eventually::eventually, moving_slot::MovingSlot, redis_cluster::RedisCluster,
};
use tollgate_test_services::{rules::INSTANCES, service::Service};

/// The line of the guide, with what a cluster adds to it.
fn line() -> String {
    let page = include_str!("../../../guide/redis.md");
    let behind = |begin: &str| page.lines().find_map(|line| line.strip_prefix(begin));
    let line = behind("127.0.0.1:6379> ").expect("the page has the line");
    let added = behind("| Cluster, on every server | `").expect("a row");
    let (added, _) = added.split_once('`').expect("its end");
    format!("{line} {}", added.replace('\\', ""))
}

/// The address of the cluster for the user of the guide but for one command.
async fn address_without(cluster: &RedisCluster, command: &str) -> String {
    assert!(command.is_empty() || line().contains(command));
    let name = format!("without{command}").replace(['+', '|'], "-");
    let line = line();
    let words = line.split(' ').filter(|word| *word != command);
    let words: Vec<_> = words
        .map(|word| if word == "tollgate" { &name } else { word })
        .collect();
    for server in 0..6 {
        cluster.say(server, &words).await;
    }
    cluster.url().replace("://", &format!("://{name}:sesame@"))
}

/// A limiter of one rule for that user.
async fn limiter_without(cluster: &RedisCluster, command: &str) -> Limiter {
    let address = address_without(cluster, command).await;
    let store = RedisStore::builder(&address, "shop", tollgate_redis::Keys::plain())
        .partition(tollgate_redis::Partition::One)
        .deadline(Duration::from_secs(10))
        .connect()
        .expect("a valid address");
    let rule = Rule::new("api", Quota::fixed_window(2, MAX_PERIOD));
    Limiter::new(store, [rule]).expect("a valid rule")
}

async fn reset(limiter: &Limiter, client: &str) -> Result<bool, StoreError> {
    let reset = limiter.reset("api", &Key::of([client]));
    reset.expect("the rule is there").await
}

async fn reports(limiter: &Limiter, what: &str) {
    eventually(&format!("an error says {what}"), || async {
        let error = reset(limiter, "client").await.err()?;
        error.to_string().contains(what).then_some(())
    })
    .await;
}

async fn works(limiter: &Limiter) {
    eventually("a client is reset", || async {
        reset(limiter, "client").await.ok()
    })
    .await;
}

#[tokio::test]
async fn the_user_of_the_guide_may_do_all_that_a_store_does_also_after_a_failover() {
    let mut cluster = RedisCluster::start().await;
    let (slot, primary) = cluster.slot("{shop}").await;
    let address = address_without(&cluster, "").await;
    let mut service = Service::named("shop", &address).await;
    // There and back, so that calls are sent on.
    let other = (primary + 1) % 3;
    for (from, to) in [(primary, other), (other, primary)] {
        let moving = MovingSlot::begin(&cluster, slot, from, to).await;
        moving.carry(|key| key.contains("deny")).await;
        let until = service.requests() + 60;
        eventually("the service asks on", || async {
            (service.requests() >= until).then_some(())
        })
        .await;
        moving.finish().await;
    }
    service.recovers("the moves").await;
    eventually("the instances know of each other", || async {
        let mut stores = service.instances.iter().map(|instance| &instance.store);
        let all = stores.all(|store| u64::from(store.instances()) == INSTANCES);
        all.then_some(())
    })
    .await;
    cluster.is_replicated(primary).await;
    cluster.server_mut(primary).kill();
    service.feels_it().await;
    service.recovers("the fail-over").await;
    service.end().await;
}

#[tokio::test]
async fn an_error_names_the_command_that_the_user_of_the_guide_lacks() {
    let cluster = RedisCluster::start().await;
    let limiter = limiter_without(&cluster, "+cluster|slots").await;
    reports(&limiter, "'cluster|slots'").await;

    works(&limiter_without(&cluster, "+cluster|info").await).await;

    let limiter = limiter_without(&cluster, "+asking").await;
    works(&limiter).await;
    let (slot, from) = cluster.slot("{shop}").await;
    let moving = MovingSlot::begin(&cluster, slot, from, (from + 1) % 3).await;
    reports(&limiter, "+asking").await;
    moving.finish().await;
    works(&limiter).await;
}
