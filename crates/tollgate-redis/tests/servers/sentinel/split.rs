//! Two servers accept at once, and how to prevent it.

use tollgate_test_servers::{eventually::eventually, sentinels::Group};
use tollgate_test_services::{
    rules::{LIMIT, RULES},
    service::Service,
};

/// Services log in as somebody else than sentinels and replicas do, so that these can be cut off alone.
const USER: [&str; 6] = ["--user", "rl", "on", ">first", "~*", "+@all"];

/// A master whose replica was promoted behind its back, while its clients still reach it.
struct Split {
    group: Group,
}

impl Split {
    async fn start(replicas: usize, settings: &[&str]) -> Self {
        let group = Group::start_with(replicas - 1, &[&USER, settings].concat()).await;
        group.is_replicated().await;
        let answers = group
            .master
            .commands(&[
                &["AUTH", "rl", "first"],
                &["ACL", "SETUSER", "default", "off"],
                &["CLIENT", "KILL", "USER", "default"],
            ])
            .await;
        assert!(answers.starts_with("+OK\r\n+OK\r\n:"), "{answers}");
        group.is_promoted().await;
        Self { group }
    }

    /// A service that sees nothing but the old master.
    async fn old_side(&self) -> Service {
        let port = self.group.master.port();
        Service::start(&format!("redis://rl:first@127.0.0.1:{port}")).await
    }

    async fn new_side(&self) -> Service {
        let address = self.group.url().replace("://", "://rl:first@");
        Service::start(&address).await
    }
}

#[tokio::test]
async fn two_masters_at_once_are_a_limit_on_each_side() {
    let split = Split::start(1, &[]).await;
    let (mut old, mut new) = (split.old_side().await, split.new_side().await);
    old.recovers("the cut").await;
    new.recovers("the cut").await;
    // Each side keeps to one limit.
    old.end().await;
    new.end().await;
    let both = old.admitted().into_iter().zip(new.admitted());
    let both: Vec<_> = both.map(|(old, new)| old + new).collect();
    // So that the bound is not stated for nothing.
    assert!(both.iter().any(|units| *units > LIMIT), "{both:?}");
}

#[tokio::test]
async fn an_old_master_that_has_to_have_a_replica_admits_nothing() {
    let settings = [
        "--min-replicas-to-write",
        "1",
        "--min-replicas-max-lag",
        "5",
    ];
    let split = Split::start(2, &settings).await;
    let (mut old, mut new) = (split.old_side().await, split.new_side().await);
    old.feels_it().await;
    new.recovers("the cut").await;
    old.stop().await;
    new.end().await;
    assert_eq!(old.admitted(), [0; RULES]);
}

#[tokio::test]
async fn a_master_whose_replica_says_nothing_refuses_after_the_lag_that_it_was_given() {
    let settings = [
        "--min-replicas-to-write",
        "1",
        "--min-replicas-max-lag",
        "1",
    ];
    let group = Group::start_with(0, &settings).await;
    group.replica.stop();
    eventually("the master misses its replica", || async {
        let info = group.master.command(&["INFO", "replication"]).await;
        info.contains("min_slaves_good_slaves:0").then_some(())
    })
    .await;
    let mut service = Service::start(&group.url()).await;
    service.feels_it().await;
    assert_eq!(service.admitted(), [0; RULES]);
    group.replica.resume();
    service.recovers("the silence of the replica").await;
    service.end().await;
}
