//! What is granted, reported and denied under each partition.

use tollgate_core::{Block, Key, MAX_PERIOD, Outcome, Quota, Rule, Source, Verdict};
use tollgate_redis::{Keys, Partition};
use tollgate_test_servers::{
    redis_cluster::RedisCluster,
    redis_server::{PATIENCE, RedisServer},
};

use crate::{
    load::{LEASED, eventual},
    service::{Service, check},
};

const LIMIT: u64 = 300;

fn quota() -> Quota {
    Quota::gcra(LIMIT, MAX_PERIOD)
}

/// The rules of a request lie in two hash slots, and the first one denies: then the second is not asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_denial_in_one_hash_slot_does_not_end_the_leases_of_another() {
    let cluster = RedisCluster::start_patient().await;
    let url = cluster.url();
    let mut service = Service::start_with(&url, Keys::plain(), |builder| {
        builder.partition(Partition::Key)
    })
    .await;
    let full = Quota::fixed_window(1, MAX_PERIOD);
    let rules = [
        Rule::new("full", full),
        Rule::new("granted", quota()).consistency(LEASED),
    ];
    let limiter = service.limiter(rules);
    let key = Key::of("another client");
    let full = limiter.check("full", &key).expect("the rule is there");
    let granted = check(&limiter, "granted");
    assert!(limiter.acquire(&[full]).await.is_allowed());
    service.take_until(&limiter, granted, Source::Lease).await;
    // More than is on lease: the lease would go back with the query, but no query is sent.
    let decision = limiter.acquire(&[full, granted.with_cost(LIMIT / 2)]).await;
    assert_eq!(decision.verdicts()[1].outcome(), Outcome::NotDecided);
    service.take_until(&limiter, granted, Source::Lease).await;
    service.drain(&limiter, granted).await;
    // The lease was lost.
    let net = service.net;
    assert!((LIMIT - LIMIT / 10..=LIMIT).contains(&net), "{net}");
}

#[tokio::test]
async fn the_states_of_a_request_lie_with_its_tenant() {
    let server = RedisServer::start(&[]).await;
    let service = Service::start_with(&server.url(), Keys::plain(), |builder| {
        builder.partition(Partition::ByRule("per-tenant".into()))
    })
    .await;
    let limiter = service.limiter([
        Rule::new("per-user", Quota::fixed_window(1, MAX_PERIOD)).block(Block::after(1)),
        Rule::new("per-tenant", Quota::gcra(100, MAX_PERIOD))
            .threshold("half", Quota::gcra(100, MAX_PERIOD).burst(50)),
    ]);
    for tenant in ["acme", "initech"] {
        let tenant = limiter.check("per-tenant", &Key::of([tenant]));
        let checks = [
            check(&limiter, "per-user"),
            tenant.expect("the rule is there"),
        ];
        for allowed in [true, false] {
            assert_eq!(limiter.acquire(&checks).await.is_allowed(), allowed);
        }
        let left = limiter.peek(&[checks[1].with_cost(0)]).await;
        let left = left.verdicts().iter().map(Verdict::remaining);
        assert_eq!(left.collect::<Vec<_>>(), [99, 49]);
    }
    // What comes back finds its state also where the tenant pays nothing.
    let tenant = limiter.check("per-tenant", &Key::of(["globex"]));
    let tenant = tenant.expect("the rule is there").with_cost(0);
    let checks = [check(&limiter, "per-user"), tenant];
    for _ in 0..2 {
        let decision = limiter.acquire(&checks).await;
        assert!(decision.is_allowed());
        limiter.ticket(&checks, &decision).cancel();
        service.store.flush(PATIENCE).await;
    }
}

#[tokio::test]
async fn a_charge_that_this_process_counts_for_the_tenant_is_one_of_the_tenants_user_as_well() {
    let server = RedisServer::start(&[]).await;
    let mut service = Service::start_with(&server.url(), Keys::plain(), |builder| {
        builder.partition(Partition::ByRule("per-tenant".into()))
    })
    .await;
    let limiter = service.limiter([
        Rule::new("per-user", Quota::fixed_window(10, MAX_PERIOD)),
        Rule::new("per-tenant", Quota::fixed_window(100, MAX_PERIOD)).consistency(eventual(20)),
    ]);
    let tenant = limiter.check("per-tenant", &Key::of(["acme"]));
    let checks = [
        check(&limiter, "per-user"),
        tenant.expect("the rule is there"),
    ];
    service.take_until(&limiter, checks[1], Source::Local).await;
    let decision = limiter.acquire(&checks).await;
    limiter.ticket(&checks, &decision).settle(4);
    service.store.flush(PATIENCE).await;
    let left = limiter.peek(&checks.map(|check| check.with_cost(0))).await;
    assert_eq!(left.verdicts()[0].remaining(), 6);
}
