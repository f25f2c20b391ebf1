//! Each request is counted at most once, whatever becomes of scripts and answers.

use redis::Value;
use tokio::task::JoinSet;
use tollgate_core::{Check, DAY, Key, Limiter, MAX_PERIOD, OnStoreError, Quota, Rule, Source};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{
    blocking_server,
    eventually::eventually,
    proxy::{Fault, Proxy},
    redis_client::RedisClient,
    redis_server::RedisServer,
};
use tollgate_test_services::{
    instance::DEADLINE,
    patient::{acquire, patient_store},
};

const LIMIT: u64 = 1_000;

fn counting(store: &RedisStore) -> (Limiter, Check) {
    let rule =
        Rule::new("once", Quota::sliding_log(LIMIT, MAX_PERIOD)).on_store_error(OnStoreError::Deny);
    let limiter = Limiter::new(store.clone(), [rule]).expect("a valid rule");
    let check = limiter.check("once", &Key::of("client"));
    (limiter, check.expect("the rule is there"))
}

#[tokio::test]
async fn a_call_with_a_lost_reply_is_not_retried() {
    let server = RedisServer::start(&[]).await;
    let proxy = Proxy::start(server.port(), 3).await;
    let store = RedisStore::builder(proxy.url(), "once", tollgate_redis::Keys::plain())
        .deadline(DEADLINE)
        .connect()
        .expect("a valid address");
    store.connected().await;
    let (limiter, check) = counting(&store);
    let (mut admitted, mut unknown) = (0, 0);
    let left = async || {
        eventually("the store is asked again", || async {
            let looked = limiter.peek(&[check.with_cost(0)]).await;
            let verdict = looked.verdicts()[0];
            verdict.has_numbers().then(|| verdict.remaining())
        })
        .await
    };
    for bytes in (0..400).step_by(20) {
        proxy.set(Fault::ResetAfter(bytes));
        let layout: Vec<_> = (0..8).map(|_| limiter.acquire(&[check])).collect();
        for answer in layout {
            if answer.await.is_allowed() {
                admitted += 1;
            } else {
                unknown += 1;
            }
        }
        proxy.set(Fault::None);
        left().await;
    }
    let used = LIMIT - left().await;
    assert!(unknown > 0);
    assert!(
        (admitted..=admitted + unknown).contains(&used),
        "{admitted} were admitted, {unknown} are not known, and {used} are used"
    );
}

#[tokio::test]
async fn a_script_that_is_flushed_in_the_middle_costs_no_request_and_no_unit() {
    const TASKS: u64 = 16;
    let server = blocking_server::RedisServer::start(&[]);
    let store = patient_store(&format!("redis://{}", server.address())).await;
    let (limiter, check) = counting(&store);
    let mut connection = RedisClient::connect(server.address());
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let limiter = limiter.clone();
        tasks.spawn(async move {
            let mut admitted = 0;
            for _ in 0..LIMIT / TASKS + 10 {
                admitted += u64::from(acquire(&limiter, &[check]).await.is_allowed());
            }
            admitted
        });
    }
    let mut admitted = 0;
    loop {
        let flushed = connection.say("SCRIPT FLUSH");
        assert_eq!(flushed, Value::Okay);
        tokio::task::yield_now().await;
        while let Some(ended) = tasks.try_join_next() {
            admitted += ended.expect("a task asks to the end");
        }
        if tasks.is_empty() {
            break;
        }
    }
    assert_eq!(admitted, LIMIT);
}

#[tokio::test]
async fn four_hundred_callers_of_one_key_read_and_write_it_once_each() {
    const CALLERS: u64 = 400;
    let server = blocking_server::RedisServer::start(&[]);
    let store = patient_store(&format!("redis://{}", server.address())).await;
    let (limiter, check) = counting(&store);
    // The server knows the script from now on.
    assert!(acquire(&limiter, &[check]).await.is_allowed());
    let mut connection = RedisClient::connect(server.address());
    connection.say("CONFIG RESETSTAT");
    let layout: Vec<_> = (0..CALLERS).map(|_| limiter.acquire(&[check])).collect();
    for answer in layout {
        assert!(answer.await.is_allowed());
    }
    let Value::BulkString(stats) = connection.say("INFO commandstats") else {
        panic!("INFO answers a text");
    };
    let stats = String::from_utf8_lossy(&stats);
    let calls = |command: &str| -> u64 {
        let name = format!("cmdstat_{command}:calls=");
        let line = stats.lines().find_map(|line| line.strip_prefix(&*name));
        let number = line.and_then(|line| line.split(',').next());
        number.map_or(0, |number| number.parse().expect("a number"))
    };
    let counted = [calls("get"), calls("set"), calls("watch")];
    assert_eq!(counted, [CALLERS, CALLERS, 0], "{stats}");
}

#[tokio::test]
async fn in_an_outage_a_charge_is_owed_to_the_local_share_and_one_that_may_have_run_is_not() {
    let mut server = RedisServer::start(&[]).await;
    let store = RedisStore::builder(server.url(), "once", tollgate_redis::Keys::plain())
        .deadline(20 * DEADLINE)
        .connect()
        .expect("a valid address");
    store.connected().await;
    let rule = Rule::new("tokens", Quota::fixed_window(100, 366 * DAY)).debt(1_000);
    let limiter = Limiter::new(store, [rule]).expect("a valid rule");
    let check = |who| {
        [limiter
            .check("tokens", &Key::of(who))
            .expect("the rule")
            .with_cost(10)]
    };
    let lapsed = || limiter.rule_store().lapsed_units(0);
    let ticket = async |who| {
        let decision = limiter.acquire(&check(who)).await;
        assert!(decision.is_allowed(), "{decision:?}");
        limiter.ticket(&check(who), &decision)
    };

    let held = ticket("stopped").await;
    server.stop();
    held.settle(210);
    eventually("its outcome is unknown", || async {
        (lapsed() == 200).then_some(())
    })
    .await;
    let decision = limiter.acquire(&check("stopped")).await;
    assert!(
        decision.is_allowed(),
        "the share was not charged: {decision:?}"
    );
    server.resume();
    let owed = eventually("the server answers", || async {
        let looked = limiter.peek(&[check("stopped")[0].with_cost(0)]).await;
        looked.verdicts()[0]
            .has_numbers()
            .then(|| looked.verdicts()[0].debt())
    });
    // It may have run the charge, and a request behind it. Twice would be 310.
    let owed = owed.await;
    assert!(owed <= 120, "{owed}");

    let held = ticket("killed").await;
    server.kill();
    eventually("it is known that the server is gone", || async {
        let decision = limiter.acquire(&check("another")).await;
        (decision.verdicts()[0].source() == Source::Fallback).then_some(())
    })
    .await;
    held.settle(210);
    // The share has admitted the second one itself.
    let of_share = ticket("share").await;
    of_share.settle(210);
    for who in ["killed", "share"] {
        let decision = limiter.acquire(&check(who)).await;
        assert_eq!(decision.verdicts()[0].source(), Source::Fallback);
        assert!(!decision.is_allowed(), "{who} owes: {decision:?}");
    }
    assert_eq!(lapsed(), 200);
}
