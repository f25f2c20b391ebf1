//! Rules behind Sentinel, in a cluster, and through encrypted connections.

use std::time::Duration;

use tokio::time::sleep;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tollgate_rules::{
    Bindings,
    redis::{Certificates, PushErrorKind, RedisRules},
};
use tollgate_test_servers::{
    certificate::Certificate,
    eventually::eventually,
    moving_slot::MovingSlot,
    redis_cluster::RedisCluster,
    redis_server::{RedisServer, free_port},
    sentinels::Group,
};

use crate::{follow, limit_of, limits, push, says, secret, until};

fn rules_at(address: &str) -> RedisRules {
    RedisRules::new(address, "shop", &secret(7)).expect("an address")
}

/// The revision of a push, once a server takes it.
async fn pushed(redis: &RedisRules, limit: &str) -> u64 {
    let (author, bindings) = (crate::alice(), Bindings::new());
    eventually("a server takes a push", async || {
        redis.push(limits(limit), &bindings, &author).await.ok()
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_follow_the_master_that_sentinels_name() {
    let mut group = Group::start().await;
    let redis = rules_at(&group.url());
    push(&redis, limits("3/h")).await;
    let rules = follow(&redis).await;
    push(&redis, limits("4/h")).await;
    until("a push arrives", || limit_of(&rules) == 4).await;
    group.is_replicated().await;
    group.master.kill();
    group.is_promoted().await;
    // It knows what the old one knew.
    assert_eq!(pushed(&redis, "5/h").await, 3);
    until("it arrives from the new master", || limit_of(&rules) == 5).await;
    assert_eq!(rules.status().revision, 3);
    assert_eq!(rules.status().rejected, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_master_that_goes_on_answering_is_left() {
    let group = Group::start().await;
    let redis = rules_at(&group.url());
    push(&redis, limits("3/h")).await;
    let rules = follow(&redis).await;
    group.is_replicated().await;
    // As if the sentinels and the replica were cut off from the master, and this process were not.
    group.replica.command(&["REPLICAOF", "NO", "ONE"]).await;
    let port = group.replica.port().to_string();
    let monitor = ["SENTINEL", "MONITOR", "mymaster", "127.0.0.1", &port, "2"];
    for sentinel in &group.sentinels {
        let commands = [&["SENTINEL", "REMOVE", "mymaster"][..], &monitor];
        sentinel.commands(&commands).await;
    }
    assert_eq!(push(&rules_at(&group.url()), limits("4/h")).await, 2);
    until("it arrives from the new master", || limit_of(&rules) == 4).await;
    assert!(group.master.is_in_role("master").await);
}

#[tokio::test]
async fn sentinels_that_stand_still_are_not_waited_for_one_after_the_other() {
    let group = Group::start().await;
    group.sentinels[..2].iter().for_each(RedisServer::stop);
    assert_eq!(push(&rules_at(&group.url()), limits("3/h")).await, 1);
}

#[tokio::test]
async fn sentinels_that_do_not_know_the_master_say_so() {
    let group = Group::start().await;
    let address = group.url().replace("/mymaster", "/shops");
    let wrong = rules_at(&address).fleet().await.expect_err("no master");
    assert_eq!(wrong.kind(), PushErrorKind::Unavailable);
    let wrong = wrong.to_string();
    says(&wrong, "shops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_are_found_in_a_cluster_by_any_of_its_servers_and_again_where_they_move_to() {
    let cluster = RedisCluster::start().await;
    let (_, owner) = cluster.slot("{shop}:rules").await;
    let other = (owner + 1) % 3;
    let redis = rules_at(&cluster.url_of([other]));
    push(&redis, limits("3/h")).await;
    let rules = follow(&redis).await;
    push(&redis, limits("4/h")).await;
    until("a push arrives", || limit_of(&rules) == 4).await;
    cluster.is_replicated(owner).await;
    // Its replica takes over, and the server itself becomes the replica.
    cluster.say(owner + 3, &["CLUSTER", "FAILOVER"]).await;
    eventually("the replica takes over", async || {
        let taken = cluster.server(owner + 3).is_in_role("master").await;
        let given = cluster.server(owner).is_in_role("slave").await;
        (taken && given).then_some(())
    })
    .await;
    push(&redis, limits("5/h")).await;
    until("it arrives from the new server", || limit_of(&rules) == 5).await;
    assert_eq!(rules.status().revision, 3);
    assert_eq!(rules.status().rejected, 0);
    // By the address of one server alone they are not found.
    let alone = format!("redis://127.0.0.1:{}", cluster.server(other).port());
    let wrong = rules_at(&alone).fleet().await.expect_err("another server");
    let wrong = wrong.to_string();
    says(&wrong, "write the address as redis-cluster://127.0.0.1:");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_are_found_again_while_the_server_that_had_them_stands_still() {
    let cluster = RedisCluster::start().await;
    let (_, owner) = cluster.slot("{shop}:rules").await;
    let redis = rules_at(&cluster.url_of([owner, (owner + 1) % 3]));
    push(&redis, limits("3/h")).await;
    let rules = follow(&redis).await;
    cluster.is_replicated(owner).await;
    // It accepts connections and answers none of them.
    cluster.server(owner).stop();
    assert_eq!(pushed(&redis, "4/h").await, 2);
    until("it arrives from the replica", || limit_of(&rules) == 4).await;
    // So does who was not there before.
    let other = rules_at(&cluster.url_of([owner, (owner + 1) % 3]));
    assert_eq!(push(&other, limits("5/h")).await, 3);
    // And it hears of changes from the second server of the address.
    let _rules = follow(&other).await;
    let asked = ["PUBSUB", "NUMSUB", "{shop}:rules"];
    let (_, listeners): (String, u32) = cluster.server((owner + 1) % 3).ask(&asked);
    assert!(listeners > 0);
}

/// While one server has some of a call's keys and another has the rest, both refuse it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_waits_until_all_keys_are_on_one_server_and_else_says_that_they_move() {
    let cluster = RedisCluster::start_patient().await;
    let (slot, owner) = cluster.slot("{shop}:rules").await;
    let redis = rules_at(&cluster.url_of([owner]));
    push(&redis, limits("3/h")).await;
    let rules = follow(&redis).await;
    let moving = MovingSlot::begin(&cluster, slot, owner, (owner + 1) % 3).await;
    moving.carry(|key| key.ends_with(":rules")).await;
    let author = crate::alice();
    let bindings = Bindings::new();
    let stuck = redis.push(limits("4/h"), &bindings, &author).await;
    let stuck = stuck.expect_err("half of the keys have moved");
    assert_eq!(stuck.kind(), PushErrorKind::Unavailable);
    says(&stuck, "try again when it has moved");
    let pushing = redis.push(limits("4/h"), &bindings, &author);
    let moves = async {
        // The push meets keys on both servers.
        sleep(Duration::from_millis(300)).await;
        moving.finish().await;
    };
    let (pushed, ()) = tokio::join!(pushing, moves);
    assert_eq!(pushed.expect("all keys have moved"), 2);
    until("it arrives", || limit_of(&rules) == 4).await;
}

#[tokio::test]
async fn rules_travel_encrypted() {
    let (certificate, port) = (Certificate::of(&["127.0.0.1"]), free_port());
    let args = certificate.args(port);
    let _server = RedisServer::start(&args.split(' ').collect::<Vec<_>>()).await;
    let url = format!("rediss://127.0.0.1:{port}");
    // Another test may have done it.
    let _ = default_provider().install_default();
    let trusted = Certificates::of_authorities(&*certificate.pem);
    let redis = RedisRules::with_tls(&*url, "shop", &secret(7), trusted);
    let redis = redis.expect("an address");
    push(&redis, limits("3/h")).await;
    let rules = follow(&redis).await;
    push(&redis, limits("4/h")).await;
    until("a push arrives", || limit_of(&rules) == 4).await;

    let another = Certificates::of_authorities(Certificate::of(&["127.0.0.1"]).pem);
    let distrusting = RedisRules::with_tls(&*url, "shop", &secret(7), another);
    let wrong = distrusting.expect("an address").fleet().await;
    let wrong = wrong.expect_err("nobody trusts it");
    assert_eq!(wrong.kind(), PushErrorKind::Unavailable);
    says(&wrong, "certificate");
}

#[test]
fn encryption_is_asked_for_and_configured_together() {
    let wrong = RedisRules::new("rediss://localhost", "shop", &secret(7));
    let wrong = wrong.expect_err("nobody is trusted");
    assert_eq!(wrong.kind(), PushErrorKind::Setting);
    says(&wrong, "RedisRules::with_tls");
    let _ = default_provider().install_default();
    for (address, trusted, words) in [
        // It would travel in clear text.
        (
            "redis://localhost",
            Certificates::of_system(),
            "rediss://host:6379",
        ),
        (
            "rediss://localhost",
            Certificates::of_authorities("none"),
            "-----BEGIN CERTIFICATE-----",
        ),
    ] {
        let wrong = RedisRules::with_tls(address, "shop", &secret(7), trusted);
        let wrong = wrong.expect_err("it cannot be used");
        assert_eq!(wrong.kind(), PushErrorKind::Setting);
        says(&wrong, words);
    }
}
