//! Slots in a cluster: each key's lie in a slot of the cluster of their own, and are told of there.

use std::time::Duration;

use tokio::time::sleep;
use tollgate_core::{Check, Decision, Limiter, MAX_PERIOD, Quota, Reason, Rule, Ticket};
use tollgate_redis::{Keys, Partition, RedisStore};
use tollgate_test_servers::redis_cluster::RedisCluster;

use super::{key, secret};

const TERM: Duration = Duration::from_secs(6);
const TENANTS: usize = 12;

async fn limiter(cluster: &RedisCluster) -> Limiter {
    let store = RedisStore::builder(cluster.url(), "held", Keys::hashed(secret(7)))
        .partition(Partition::Key)
        .deadline(Duration::from_secs(60))
        .slot_term(TERM)
        .connect()
        .expect("a valid address");
    store.connected().await;
    let rules = [
        Rule::new("exports", Quota::concurrent(1)),
        Rule::new("per-ip", Quota::fixed_window(2, MAX_PERIOD)),
    ];
    Limiter::new(store, rules).expect("valid rules")
}

fn checks(limiter: &Limiter, tenant: &str, ip: &str) -> [Check; 2] {
    [("exports", tenant), ("per-ip", ip)]
        .map(|(rule, of)| limiter.check(rule, &key(of)).expect("it is there"))
}

async fn acquire(limiter: &Limiter, tenant: &str, ip: &str) -> (Decision, Ticket) {
    let checks = checks(limiter, tenant, ip);
    let decision = limiter.acquire(&checks).await;
    let ticket = limiter.ticket(&checks, &decision);
    (decision, ticket)
}

async fn freed(limiter: &Limiter, tenant: &str) {
    let check = limiter.check("exports", &key(tenant)).expect("it is there");
    for _ in 0..3_000 {
        let looked = limiter.peek(&[check.with_cost(0)]).await;
        if looked.verdicts()[0].remaining() == 1 {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("the slot of {tenant} is not back");
}

/// Two keys are two steps, and the slot of the first one goes back when the second denies.
pub(crate) async fn slots_go_back_when_a_later_step_denies(cluster: &RedisCluster) {
    let limiter = limiter(cluster).await;
    for _ in 0..2 {
        let (decision, ticket) = acquire(&limiter, "acme", "ip").await;
        assert!(decision.is_allowed());
        assert!(ticket.slot_number("exports").is_some());
        let (denied, _) = acquire(&limiter, "acme", "other").await;
        assert_eq!(denied.reason(), Some(Reason::Slots));
        drop((decision, ticket));
        freed(&limiter, "acme").await;
    }
    for _ in 0..3 {
        let (denied, ticket) = acquire(&limiter, "acme", "ip").await;
        assert_eq!(denied.reason(), Some(Reason::Quota));
        drop((denied, ticket));
        freed(&limiter, "acme").await;
    }
}

/// What runs for longer than the term is renewed in each slot of the cluster.
pub(crate) async fn slots_are_renewed_wherever_they_lie(cluster: &RedisCluster) {
    let (here, there) = (limiter(cluster).await, limiter(cluster).await);
    let tenants: Vec<_> = (0..TENANTS)
        .map(|tenant| format!("tenant-{tenant}"))
        .collect();
    let mut running = Vec::new();
    for tenant in &tenants {
        let (decision, ticket) = acquire(&here, tenant, tenant).await;
        assert!(decision.is_allowed());
        running.push(ticket);
    }
    sleep(TERM + TERM / 4).await;
    for tenant in &tenants {
        let (denied, _) = acquire(&there, tenant, tenant).await;
        assert_eq!(denied.reason(), Some(Reason::Slots), "{tenant}");
    }
    drop(running);
    for tenant in &tenants {
        freed(&there, tenant).await;
    }
}
