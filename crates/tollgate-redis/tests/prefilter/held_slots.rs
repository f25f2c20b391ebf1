//! Slots in Redis: where they lie, and what becomes of them when calls or states are lost.

use std::time::Duration;

use tokio::time::sleep;
use tollgate_core::{Check, Key, Limiter, OnStoreError, Quota, Reason, Rule, SECOND, Ticket};
use tollgate_redis::{Keys, Partition, RedisStore};
use tollgate_test_servers::redis_server::RedisServer;

const PATIENT: Duration = Duration::from_secs(20);

async fn limiter(server: &RedisServer, partition: Partition, limit: u64) -> Limiter {
    let store = RedisStore::builder(server.url(), "held", Keys::plain())
        .deadline(PATIENT)
        .partition(partition)
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
    left(limiter, tenant, user, 1, slots).await;
}

/// Waits until a rule has so many units or slots left.
async fn left(limiter: &Limiter, tenant: &str, user: &str, rule: usize, units: u64) {
    let checks = checks(limiter, tenant, user).map(|check| check.with_cost(0));
    let mut left = u64::MAX;
    for _ in 0..3_000 {
        left = limiter.peek(&checks).await.verdicts()[rule].remaining();
        if left == units {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("{left} are left and not {units}");
}

#[tokio::test]
async fn slots_that_lie_with_a_tenant_go_back_to_that_tenant() {
    let server = RedisServer::start(&[]).await;
    let limiter = limiter(&server, Partition::ByRule("per-tenant".into()), 1).await;
    // One user is counted for each tenant apart, as with units, also in one call.
    let at_both = ["globex", "acme"].map(|tenant| start(&limiter, tenant, "ada"));
    let [at_globex, at_acme] = at_both;
    let (at_globex, at_acme) = tokio::join!(at_globex, at_acme);
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
async fn units_that_lie_with_a_rule_of_slots_go_back_to_its_client() {
    let server = RedisServer::start(&[]).await;
    let limiter = limiter(&server, Partition::ByRule("exports".into()), 1).await;
    let ticket = start(&limiter, "acme", "ada").await.expect("it is free");
    left(&limiter, "acme", "ada", 0, 999).await;
    ticket.cancel();
    left(&limiter, "acme", "ada", 0, 1_000).await;
    let ticket = start(&limiter, "acme", "ada").await;
    ticket.expect("it is free again").settle(5);
    left(&limiter, "acme", "ada", 0, 995).await;
}
