//! Masters that sentinels name.

use crate::{
    connection::{error::CallErrorKind, event::NodeEvent},
    connection_tests::{
        bench::{Bench, calls_of, eventually},
        sentinels::Group,
    },
};

#[tokio::test]
async fn after_a_failover_the_new_master_is_asked() {
    let mut group = Group::start().await;
    let bench = Bench::start(&group.url());
    bench.recovers("k").await;
    assert!(group.master.ask(&["GET", "k"]).await.starts_with("$1"));
    group.master.kill();
    bench.recovers("after").await;
    assert!(group.replica.ask(&["GET", "after"]).await.starts_with("$1"));
    assert!(group.replica.is_in_role("master").await);
    bench.is_well().await;
}

#[tokio::test]
async fn a_master_that_was_replaced_while_it_stood_still_is_not_asked_again() {
    let group = Group::start().await;
    let bench = Bench::start(&group.url());
    bench.recovers("k").await;
    group.master.stop();
    bench.recovers("after").await;
    group.master.resume();
    bench.is_well().await;
    assert!(group.replica.ask(&["GET", "after"]).await.starts_with("$1"));
    // What had been written to it before may have run; nothing that came later does.
    let before = calls_of(&group.master, "evalsha").await;
    for _ in 0..50 {
        let _ = bench.take("after").await;
    }
    assert_eq!(calls_of(&group.master, "evalsha").await, before);
}

#[tokio::test]
async fn a_change_of_masters_is_noticed_although_the_old_one_still_answers() {
    let group = Group::start().await;
    let bench = Bench::start_with(&group.url(), |options| {
        options.sentinel_interval = std::time::Duration::from_millis(50);
    });
    bench.recovers("k").await;
    eventually("a fail-over is begun", || async {
        let begun = group.sentinels[0]
            .ask(&["SENTINEL", "FAILOVER", "mymaster"])
            .await;
        begun.starts_with("+OK").then_some(())
    })
    .await;
    bench
        .happens("the old master is left", |event| {
            matches!(event, NodeEvent::Lost(_))
        })
        .await;
    eventually("the new master is asked", || async {
        let _ = bench.take("after").await;
        group
            .replica
            .ask(&["GET", "after"])
            .await
            .starts_with("$1")
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn sentinels_that_are_gone_or_know_nothing_are_passed_over() {
    let mut group = Group::start().await;
    let url = group.url();
    group.sentinels[0].kill();
    group.sentinels[1].stop();
    let bench = Bench::start(&url);
    bench.recovers("k").await;
    group.sentinels[1].resume();
    let bench = Bench::start(&url.replace("mymaster", "another"));
    bench
        .happens(
            "the name is not known",
            |event| matches!(event, NodeEvent::NotConnected(why) if why.contains("\"another\"")),
        )
        .await;
    assert_eq!(bench.fails("k").await, CallErrorKind::Unavailable);
}
