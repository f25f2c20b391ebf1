//! Slots on lease: how often Redis is asked, and that they are used by one request at a time, whoever has them on lease.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use tokio::{
    task::{JoinSet, yield_now},
    time::sleep,
};
use tollgate_core::{
    Check, Consistency, Decision, Key, LeaseShare, Limiter, OnStoreError, Quota, Reason, Rule,
    SECOND, Source, Ticket,
};
use tollgate_prefilter::Effective;
use tollgate_redis::{Keys, RedisStore};
use tollgate_test_servers::redis_server::RedisServer;

const PATIENT: Duration = Duration::from_secs(20);
const LEASED: Consistency = Consistency::Leased {
    share: LeaseShare::percent(50),
};

/// A process, as Redis sees it: each store is an owner of its own.
async fn process(server: &RedisServer, limit: u64, term: Duration) -> (RedisStore, Limiter) {
    let store = RedisStore::builder(server.url(), "leased", Keys::plain())
        .deadline(PATIENT)
        .slot_term(term)
        .connect()
        .expect("a valid address");
    store.connected().await;
    let exports = Rule::new("exports", Quota::concurrent(limit)).consistency(LEASED);
    assert_eq!(store.effective(&exports, 0), Effective::LeasedSlots);
    let rules = [
        Rule::new("per-user", Quota::fixed_window(3, SECOND * 3_600)),
        exports,
    ];
    let rules = rules.map(|rule| rule.on_store_error(OnStoreError::Deny));
    let limiter = Limiter::new(store.clone(), rules).expect("valid rules");
    (store, limiter)
}

fn slots(limiter: &Limiter, cost: u64) -> Check {
    let check = limiter.check("exports", &Key::of(["acme"]));
    check.expect("the rule").with_cost(cost)
}

async fn start(limiter: &Limiter, cost: u64) -> (Decision, Option<Ticket>) {
    let checks = [slots(limiter, cost)];
    let decision = limiter.acquire(&checks).await;
    let ticket = limiter.ticket(&checks, &decision);
    let ticket = decision.is_allowed().then_some(ticket);
    (decision, ticket)
}

/// Waits until a request is admitted.
async fn admitted(limiter: &Limiter, cost: u64) -> Ticket {
    for _ in 0..3_000 {
        if let (_, Some(ticket)) = start(limiter, cost).await {
            return ticket;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("{cost} slots are not free");
}

/// Calls of the script so far.
async fn calls(server: &RedisServer) -> u64 {
    let text = server.command(&["INFO", "commandstats"]).await;
    let mut lines = text.lines();
    let number = lines.find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    let number = number.and_then(|number| number.split(',').next());
    number.map_or(0, |number| number.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_key_costs_one_call_in_twenty_requests_at_most_and_never_runs_above_its_limit() {
    const PROCESSES: usize = 3;
    const TASKS: u64 = 16;
    const EACH: u64 = 250;
    const LIMIT: u64 = 64;
    let server = RedisServer::start(&[]).await;
    let before = calls(&server).await;
    let running = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..PROCESSES {
        let (_, limiter) = process(&server, LIMIT, 15 * SECOND).await;
        for _ in 0..TASKS {
            let (limiter, running) = (limiter.clone(), Arc::clone(&running));
            tasks.spawn(async move {
                for _ in 0..EACH {
                    let ticket = start(&limiter, 1).await.1.expect("there are more slots");
                    let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                    assert!(now <= LIMIT, "{now} at once");
                    yield_now().await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    drop(ticket);
                }
            });
        }
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("it does not panic");
    }
    let calls = calls(&server).await - before;
    let requests = PROCESSES as u64 * TASKS * EACH;
    println!("{calls} calls, {requests} requests");
    assert!(calls <= requests / 20, "{calls} calls, {requests} requests");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_than_the_limit_run_where_processes_take_the_slots_from_each_other() {
    const LIMIT: u64 = 5;
    let server = RedisServer::start(&[]).await;
    let running = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let (_, limiter) = process(&server, LIMIT, 5 * SECOND).await;
        for task in 0..12 {
            let (limiter, running) = (limiter.clone(), Arc::clone(&running));
            let cost = 1 + u64::from(task % 3 == 0);
            tasks.spawn(async move {
                for _ in 0..8 {
                    // Each process gets its turn.
                    let ticket = admitted(&limiter, cost).await;
                    let now = running.fetch_add(cost, Ordering::SeqCst) + cost;
                    assert!(now <= LIMIT, "{now} at once");
                    sleep(Duration::from_millis(1)).await;
                    running.fetch_sub(cost, Ordering::SeqCst);
                    drop(ticket);
                }
            });
        }
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("it does not panic");
    }
}

#[tokio::test]
async fn idle_slots_stay_on_lease_for_a_third_of_the_term_and_go_back_then() {
    let server = RedisServer::start(&[]).await;
    let (_store, here) = process(&server, 2, 5 * SECOND).await;
    let (_other, there) = process(&server, 2, 5 * SECOND).await;
    let (first, second) = (start(&here, 1).await, start(&here, 1).await);
    assert_eq!(first.0.verdicts()[0].source(), Source::Lease);
    assert!(first.1.is_some() && second.1.is_some());
    let (denied, _) = start(&here, 1).await;
    assert_eq!(denied.reason(), Some(Reason::Slots));
    let (denied, _) = start(&there, 1).await;
    assert_eq!(denied.reason(), Some(Reason::Slots));
    drop(first);
    // One idles here and is taken back; the other one runs on.
    let taken = admitted(&there, 1).await;
    assert!(second.1.is_some());
    drop((second, taken));
    let all = admitted(&there, 2).await;
    drop(all);
}

#[tokio::test]
async fn a_store_that_ends_returns_its_idle_slots_at_once() {
    let server = RedisServer::start(&[]).await;
    let (store, here) = process(&server, 1, 3_600 * SECOND).await;
    let (_other, there) = process(&server, 1, 3_600 * SECOND).await;
    drop(start(&here, 1).await.1.expect("it is free"));
    let (denied, _) = start(&there, 1).await;
    assert_eq!(denied.reason(), Some(Reason::Slots));
    assert_eq!(store.flush(PATIENT).await, 0);
    let look = [slots(&there, 1)];
    assert_eq!(there.peek(&look).await.verdicts()[0].remaining(), 0);
    assert!(there.peek(&look).await.is_allowed());
}

#[tokio::test]
async fn slots_on_lease_and_rates_are_decided_together() {
    let server = RedisServer::start(&[]).await;
    let (_store, limiter) = process(&server, 1, 15 * SECOND).await;
    let user = limiter
        .check("per-user", &Key::of(["ada"]))
        .expect("it is there");
    let checks = [user, slots(&limiter, 1)];
    for _ in 0..3 {
        let decision = limiter.acquire(&checks).await;
        assert!(decision.is_allowed() && !decision.is_degraded());
        assert_eq!(decision.verdicts()[1].source(), Source::Lease);
        let ticket = limiter.ticket(&checks, &decision);
        // It is no fencing token: another process counts for itself.
        assert_eq!(ticket.slot_number("exports"), None);
        // A request without a slot takes nothing of its rate.
        let denied = limiter.acquire(&checks).await;
        assert_eq!(denied.reason(), Some(Reason::Slots));
        drop(ticket);
    }
    // The rate denies, and the slot is free at once, also while the decision is there.
    let denied = limiter.acquire(&checks).await;
    assert_eq!(denied.reason(), Some(Reason::Quota));
    assert!(start(&limiter, 1).await.1.is_some());
    // More than there are never fit.
    let (never, _) = start(&limiter, 2).await;
    assert_eq!(never.reason(), Some(Reason::Never));
}

#[tokio::test]
async fn a_request_that_goes_away_before_it_has_its_leased_slot_holds_none() {
    let server = RedisServer::start(&[]).await;
    let (_store, limiter) = process(&server, 2, 15 * SECOND).await;
    for _ in 0..50 {
        let checks = [slots(&limiter, 1)];
        let mut answer = pin!(limiter.acquire(&checks).into_future());
        // It waits for the lease, or has its slot and goes.
        poll_fn(|cx| {
            let _ = answer.as_mut().poll(cx);
            Poll::Ready(())
        })
        .await;
    }
    drop(admitted(&limiter, 2).await);
}

#[tokio::test]
async fn without_redis_the_answer_to_a_store_failure_decides_when_the_lease_is_over() {
    let mut server = RedisServer::start(&[]).await;
    let (_store, limiter) = process(&server, 2, 2 * SECOND).await;
    let ticket = start(&limiter, 1).await.1.expect("it is free");
    drop(ticket);
    server.kill();
    // The lease is good until it ends, and what Redis would have to grant fails.
    let mut failed = None;
    for _ in 0..3_000 {
        let (decision, ticket) = start(&limiter, 1).await;
        if ticket.is_none() {
            failed = Some(decision);
            break;
        }
        sleep(Duration::from_millis(10)).await;
    }
    let failed = failed.expect("the lease ends");
    assert_eq!(failed.reason(), Some(Reason::StoreFailed));
    server.restart().await;
    drop(admitted(&limiter, 2).await);
}
