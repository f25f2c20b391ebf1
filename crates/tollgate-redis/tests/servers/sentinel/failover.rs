//! Sentinels promote a replica.

use tollgate_test_servers::{eventually::eventually, sentinels::Group};
use tollgate_test_services::{
    held::Held,
    instance::TASKS,
    rules::{INSTANCES, LIMIT},
    service::Service,
};

/// A service that has used up its limits, as the replica knows.
async fn used_up(group: &Group, url: &str) -> Service {
    let service = Service::start(url).await;
    service.recovers("the start").await;
    group.is_replicated().await;
    service
}

#[tokio::test]
async fn a_killed_master_loses_nothing_that_was_replicated() {
    let mut group = Group::start().await;
    let held = Held::start(&group.url(), "held").await;
    let mut service = used_up(&group, &group.url()).await;
    group.master.kill();
    group.is_promoted().await;
    service.recovers("the fail-over").await;
    service.end().await;
    held.survived().await;
}

#[tokio::test]
async fn a_killed_master_loses_the_units_that_were_not_replicated() {
    let mut group = Group::start().await;
    group.cut_replicas().await;
    let held = Held::start(&group.url(), "held").await;
    let mut service = Service::start(&group.url()).await;
    eventually("some of each limit is used", || async {
        let admitted = service.admitted();
        admitted.iter().all(|units| *units >= 20).then_some(())
    })
    .await;
    group.master.kill();
    // What had been answered and not yet read is counted later.
    let unread = TASKS as u64 * INSTANCES;
    service.loses(service.admitted().map(|units| units + unread));
    group.is_promoted().await;
    service.recovers("the fail-over").await;
    service.end().await;
    held.was_lost().await;
    // So that the bound is not stated for nothing.
    assert!(service.admitted().iter().any(|units| *units > LIMIT));
}

#[tokio::test]
async fn a_master_that_wakes_up_after_it_was_replaced_admits_nothing_more() {
    let group = Group::start().await;
    // Without `HELLO` a server is asked for its role by a command of its own.
    let mut service = used_up(&group, &(group.url() + "?protocol=resp2")).await;
    group.master.stop();
    group.is_promoted().await;
    service.recovers("the fail-over").await;
    group.master.resume();
    eventually("the old master learns that it is none", || async {
        let reported = group.master.is_in_role("slave").await;
        reported.then_some(())
    })
    .await;
    service.recovers("the return of the old master").await;
    service.end().await;
}
