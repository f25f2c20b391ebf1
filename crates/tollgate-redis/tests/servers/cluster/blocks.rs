//! A client is blocked while the hash slot of its state moves from server to server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{task::JoinSet, time::sleep};
use tollgate_core::{
    Block, HOUR, Key, Limiter, MAX_PERIOD, OnStoreError, Quota, Reason, Rule, Source,
};
use tollgate_redis::{Keys, Partition, RedisStore};
use tollgate_test_servers::{
    eventually::eventually, moving_slot::MovingSlot, redis_cluster::RedisCluster,
};

use super::slots::sent_on;

/// The denial that blocks.
const AFTER: u32 = 300;
const TASKS: usize = 4;

/// A process that asks about each request.
async fn process(cluster: &RedisCluster) -> Limiter {
    let store = RedisStore::builder(cluster.url(), "blocks", Keys::plain())
        .partition(Partition::One)
        .deadline(Duration::from_secs(20))
        .without_deny_cache()
        .connect()
        .expect("a valid address");
    store.connected().await;
    let block = Block::after(AFTER).within(HOUR).for_each([HOUR]);
    let rule = Rule::new("login", Quota::fixed_window(1, MAX_PERIOD)).block(block);
    Limiter::new(store, [rule.on_store_error(OnStoreError::Allow)]).expect("a valid rule")
}

/// Why Redis denies the client, or `None`.
async fn asks(limiter: &Limiter) -> Option<Reason> {
    let check = limiter.check("login", &Key::of("client")).expect("a rule");
    let decision = limiter.acquire(&[check]).await;
    assert_eq!(decision.verdicts()[0].source(), Source::Store);
    decision.reason()
}

#[tokio::test]
async fn a_block_begins_at_its_denial_and_stands_wherever_its_hash_slot_moves() {
    let cluster = RedisCluster::start_patient().await;
    let processes = [process(&cluster).await, process(&cluster).await];
    assert_eq!(asks(&processes[0]).await, None);
    let [denied, blocked] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for limiter in processes.iter().cycle().take(TASKS) {
        let limiter = limiter.clone();
        let (denied, blocked) = (Arc::clone(&denied), Arc::clone(&blocked));
        tasks.spawn(async move {
            let mut is_blocked = false;
            loop {
                match asks(&limiter).await {
                    Some(Reason::Quota) if !is_blocked => denied.fetch_add(1, Ordering::SeqCst),
                    Some(Reason::Blocked) => blocked.fetch_add(1, Ordering::SeqCst),
                    other => panic!("{other:?}, blocked before: {is_blocked}"),
                };
                is_blocked = blocked.load(Ordering::SeqCst) > 0;
                sleep(Duration::from_millis(2)).await;
            }
        });
    }
    let of_both = || denied.load(Ordering::SeqCst) + blocked.load(Ordering::SeqCst);
    let go_on = async || {
        let until = of_both() + 25;
        eventually("the processes ask on", || async {
            (of_both() >= until).then_some(())
        })
        .await;
    };
    let (slot, mut owner) = cluster.slot("{blocks}").await;
    let mut moves_of_block = 0;
    while moves_of_block < 3 {
        moves_of_block += u32::from(blocked.load(Ordering::SeqCst) > 0);
        let to = (owner + 1) % 3;
        let moving = MovingSlot::begin(&cluster, slot, owner, to).await;
        go_on().await;
        moving.carry(|key| key.contains("login")).await;
        go_on().await;
        moving.finish().await;
        go_on().await;
        owner = to;
    }
    assert!(sent_on(&cluster).await > 0);
    tasks.abort_all();
    while let Some(ended) = tasks.join_next().await {
        assert!(ended.is_err_and(|error| error.is_cancelled()));
    }
    // No denial counted twice or not at all.
    assert_eq!(denied.load(Ordering::SeqCst), u64::from(AFTER) - 1);
    // Another process learns of it, and a reset lifts it where it lies now.
    let third = process(&cluster).await;
    assert_eq!(asks(&third).await, Some(Reason::Blocked));
    let reset = third.reset("login", &Key::of("client")).expect("a rule");
    assert!(reset.await.expect("the server answers"));
    for limiter in &processes {
        eventually("the block is lifted", || async {
            (asks(limiter).await != Some(Reason::Blocked)).then_some(())
        })
        .await;
    }
}
