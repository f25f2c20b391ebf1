//! Slots in Redis: where they lie, and what becomes of them when calls or states are lost.

use std::{future::poll_fn, task::Poll, time::Duration};

use tokio::time::sleep;
use tollgate_core::{Check, Key, Limiter, OnStoreError, Quota, Reason, Rule, SECOND, Ticket};
use tollgate_redis::{Keys, Partition, RedisStore};
use tollgate_test_servers::{eventually::eventually, redis_server::RedisServer};

const PATIENT: Duration = Duration::from_secs(20);

async fn limiter(server: &RedisServer, partition: Partition, limit: u64) -> Limiter {
    limiter_with_term(server, partition, limit, 15 * SECOND).await
}

async fn limiter_with_term(
    server: &RedisServer,
    partition: Partition,
    limit: u64,
    term: Duration,
) -> Limiter {
    let store = RedisStore::builder(server.url(), "held", Keys::plain())
        .deadline(PATIENT)
        .partition(partition)
        .slot_term(term)
        .connect()
        .expect("a valid address");
    store.connected().await;
    let rules = [
        Rule::new("per-tenant", Quota::fixed_window(1_000, SECOND * 3_600)),
        Rule::new("exports", Quota::concurrent(limit)),
    ];
    let rules = rules.map(|rule| rule.on_store_error(OnStoreError::Deny));
    Limiter::new(store, rules).expect("valid rules")
}

fn checks(limiter: &Limiter, tenant: &str, user: &str) -> [Check; 2] {
    let check = |rule, key: &str| limiter.check(rule, &Key::of([key])).expect("the rule");
    [check("per-tenant", tenant), check("exports", user)]
}

async fn start(limiter: &Limiter, tenant: &str, user: &str) -> Option<Ticket> {
    let checks = checks(limiter, tenant, user);
    let decision = limiter.acquire(&checks).await;
    if !decision.is_allowed() {
        assert_eq!(decision.reason(), Some(Reason::Slots));
    }
    let ticket = limiter.ticket(&checks, &decision);
    decision.is_allowed().then_some(ticket)
}

/// Waits until so many slots are free.
async fn freed(limiter: &Limiter, tenant: &str, user: &str, slots: u64) {
    let checks = checks(limiter, tenant, user).map(|check| check.with_cost(0));
    let mut left = u64::MAX;
    for _ in 0..3_000 {
        left = limiter.peek(&checks).await.verdicts()[1].remaining();
        if left == slots {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("{left} slots are free and not {slots}");
}

#[tokio::test]
async fn slots_that_lie_with_a_tenant_go_back_to_that_tenant() {
    let server = RedisServer::start(&[]).await;
    let limiter = limiter(&server, Partition::ByRule("per-tenant".into()), 1).await;
    // One user is counted for each tenant apart, as with units.
    let at_acme = start(&limiter, "acme", "ada").await;
    let at_globex = start(&limiter, "globex", "ada").await;
    assert!(at_acme.is_some() && at_globex.is_some());
    assert!(start(&limiter, "acme", "ada").await.is_none());
    drop(at_acme);
    freed(&limiter, "acme", "ada", 1).await;
    assert!(start(&limiter, "globex", "ada").await.is_none());
    let at_acme = start(&limiter, "acme", "ada").await;
    assert!(at_acme.is_some());
    drop((at_acme, at_globex));
    freed(&limiter, "globex", "ada", 1).await;
    freed(&limiter, "acme", "ada", 1).await;
}

#[tokio::test]
async fn a_request_that_goes_away_before_it_is_answered_holds_no_slot() {
    let server = RedisServer::start(&[]).await;
    // Nothing lapses while the test runs.
    let limiter = limiter_with_term(&server, Partition::One, 3, 1_800 * SECOND).await;
    let running = start(&limiter, "acme", "ada").await;
    // They are sent, and the server answers after their callers have gone.
    server.stop();
    let mut in_flight: Vec<_> = (0..50)
        .map(|_| {
            let limiter = limiter.clone();
            Box::pin(async move { start(&limiter, "acme", "ada").await })
        })
        .collect();
    let all = poll_fn(|cx| {
        for answer in &mut in_flight {
            assert!(answer.as_mut().poll(cx).is_pending());
        }
        Poll::Ready(())
    });
    all.await;
    sleep(Duration::from_millis(100)).await;
    drop(in_flight);
    server.resume();
    freed(&limiter, "acme", "ada", 2).await;
    drop(running);
    freed(&limiter, "acme", "ada", 3).await;
}

#[tokio::test]
async fn a_server_that_has_lost_its_states_counts_what_runs_from_the_next_renewal() {
    let server = RedisServer::start(&[]).await;
    let here = limiter(&server, Partition::One, 2).await;
    let there = limiter(&server, Partition::One, 2).await;
    let first = start(&here, "acme", "ada").await;
    let second = start(&there, "acme", "ada").await;
    assert!(start(&here, "acme", "ada").await.is_none());
    server.command(&["FLUSHALL"]).await;
    server.command(&["SCRIPT", "FLUSH"]).await;
    // Each process says what it runs with its next request, and above the limit run at most the slots that were in use.
    let third = start(&here, "acme", "ada").await;
    assert!(start(&here, "acme", "ada").await.is_none());
    assert!(start(&there, "acme", "ada").await.is_none());
    assert!(first.is_some() && second.is_some() && third.is_some());
    drop((first, third));
    freed(&there, "acme", "ada", 1).await;
    drop(second);
    freed(&here, "acme", "ada", 2).await;
}

#[tokio::test]
async fn a_look_at_slots_is_never_denied_where_more_run_than_the_limit() {
    let server = RedisServer::start(&[]).await;
    let three = limiter(&server, Partition::One, 3).await;
    let one = limiter(&server, Partition::One, 1).await;
    let mut running = Vec::new();
    for _ in 0..3 {
        running.extend(start(&three, "acme", "ada").await);
    }
    let look = checks(&one, "acme", "ada").map(|check| check.with_cost(0));
    let looked = one.acquire(&look).await;
    assert!(looked.is_allowed() && running.len() == 3);
    assert_eq!(looked.verdicts()[1].remaining(), 0);
    assert!(start(&one, "acme", "ada").await.is_none());
}

#[tokio::test]
async fn a_store_tells_of_slots_that_went_back_before_it_ends() {
    let server = RedisServer::start(&[]).await;
    let (doomed, other) = (
        limiter(&server, Partition::One, 2).await,
        limiter(&server, Partition::One, 2).await,
    );
    let ticket = start(&doomed, "acme", "ada").await;
    // The limiter and the store go first; what runs keeps them.
    drop(doomed);
    freed(&other, "acme", "ada", 1).await;
    drop(ticket);
    freed(&other, "acme", "ada", 2).await;
}

/// Redis stands still for longer than the term, as if the process did: what it is told comes too late.
#[tokio::test]
async fn a_ticket_says_that_its_slots_were_forgotten() {
    const TERM: Duration = Duration::from_secs(1);
    let server = RedisServer::start(&[]).await;
    let limiter = limiter_with_term(&server, Partition::One, 4, TERM).await;
    let first = start(&limiter, "acme", "ada").await.expect("it is free");
    assert!(!first.is_outlived());
    server.stop();
    sleep(TERM * 2).await;
    server.resume();
    eventually("it says so", async || first.is_outlived().then_some(())).await;
    let second = start(&limiter, "acme", "ada").await.expect("it is free");
    assert!(!second.is_outlived());
    // It is counted again.
    freed(&limiter, "acme", "ada", 2).await;
    drop((first, second));
}
