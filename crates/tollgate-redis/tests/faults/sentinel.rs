//! A fail-over, seen by a service.

use crate::support::{eventually::eventually, sentinels::Group, service::Service};

async fn is_promoted(group: &Group) {
    eventually("the replica is the master", || async {
        let promoted = group.replica.is_in_role("master").await;
        promoted.then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_failover_costs_at_most_one_more_quota_and_is_recovered_from() {
    let mut group = Group::start().await;
    let mut service = Service::start(&group.url()).await;
    service.recovers("the start").await;
    // What the replica had not been told is lost.
    service.losses += 1;
    group.master.kill();
    is_promoted(&group).await;
    service.recovers("the fail-over").await;
    service.end().await;
}

#[tokio::test]
async fn a_master_that_wakes_up_after_it_was_replaced_admits_nothing_more() {
    let group = Group::start().await;
    let mut service = Service::start(&group.url()).await;
    service.recovers("the start").await;
    service.losses += 1;
    group.master.stop();
    is_promoted(&group).await;
    service.recovers("the fail-over").await;
    group.master.resume();
    eventually("the old master is told who it is", || async {
        let told = group.master.is_in_role("slave").await;
        told.then_some(())
    })
    .await;
    service.recovers("the return of the old master").await;
    service.end().await;
}
