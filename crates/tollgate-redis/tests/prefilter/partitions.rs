//! What is granted, reported and denied under each partition.

use tollgate_core::{Consistency, Key, Limiter, MAX_PERIOD, Outcome, Quota, Rule, Source};
use tollgate_redis::{Keys, Partition};
use tollgate_test_servers::{redis_cluster::RedisCluster, redis_server::RedisServer};

use crate::{
    load::{LEASED, eventual},
    service::{Service, check},
};

const LIMIT: u64 = 300;

fn quota() -> Quota {
    Quota::gcra(LIMIT, MAX_PERIOD)
}

/// A rule of each consistency that is not exact, with who decides of it alone.
fn rules(prefix: &str) -> [(Rule, Source); 2] {
    let rule = |suffix: &str, consistency: Consistency| {
        Rule::new(format!("{prefix}-{suffix}"), quota()).consistency(consistency)
    };
    [
        (rule("leased", LEASED), Source::Lease),
        (rule("eventual", eventual(20)), Source::Local),
    ]
}

/// Two processes on one store: one decides alone now and then, and both together admit what one would.
async fn is_one_limit(mut one: Service, mut other: Service, prefix: &str) {
    for (rule, source) in rules(prefix) {
        let name = rule.name().to_owned();
        let limiters = [one.limiter([rule.clone()]), other.limiter([rule])];
        let checks = [check(&limiters[0], &name), check(&limiters[1], &name)];
        (one.net, other.net) = (0, 0);
        one.take_until(&limiters[0], checks[0], source).await;
        for _ in 0..40 {
            other.clock.set(one.clock.now());
            let _ = other.take(&limiters[1], checks[1], 1).await;
            let _ = one.take(&limiters[0], checks[0], 1).await;
        }
        one.drain(&limiters[0], checks[0]).await;
        other.clock.set(one.clock.now());
        other.drain(&limiters[1], checks[1]).await;
        let net = one.net + other.net;
        let beyond = if source == Source::Local { 2 * 20 } else { 0 };
        assert!((LIMIT..=LIMIT + beyond).contains(&net), "{name}: {net}");
    }
}

/// A rule that cannot be counted otherwise is exact.
async fn is_exact(service: &mut Service, limiter: &Limiter, name: &str, limit: u64) {
    service.net = 0;
    let check = check(limiter, name);
    loop {
        let decision = service.take(limiter, check, 1).await;
        let verdict = decision.verdicts()[0];
        if verdict.outcome() == Outcome::Deny {
            break;
        }
        assert_eq!(verdict.source(), Source::Store, "{name}: {decision:?}");
    }
    assert_eq!(service.net, limit, "{name}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_grants_and_counts_under_each_partition() {
    let cluster = RedisCluster::start_patient().await;
    let url = cluster.url();
    for (name, partition) in [
        ("one", Partition::One),
        ("key", Partition::Key),
        ("by", Partition::ByRule("by-leased".into())),
    ] {
        let start = |keys| {
            let partition = partition.clone();
            Service::start_with(&url, keys, |builder| builder.partition(partition))
        };
        if name != "by" {
            let (one, other) = (start(Keys::plain()).await, start(Keys::plain()).await);
            is_one_limit(one, other, name).await;
        } else {
            let mut service = start(Keys::plain()).await;
            let limiter = service.limiter(rules("by").map(|(rule, _)| rule));
            let leased = check(&limiter, "by-leased");
            service.take_until(&limiter, leased, Source::Lease).await;
            service.drain(&limiter, leased).await;
            assert_eq!(service.net, LIMIT);
            is_exact(&mut service, &limiter, "by-eventual", LIMIT).await;
        }
    }
    a_denial_in_one_slot_does_not_end_the_leases_of_another(&url).await;
}

/// The rules of a request lie in two slots, and the first one denies: then the second is not asked.
async fn a_denial_in_one_slot_does_not_end_the_leases_of_another(url: &str) {
    let mut service = Service::start_with(url, Keys::plain(), |builder| {
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
async fn a_denial_of_one_tenant_says_nothing_of_the_same_client_of_another() {
    let server = RedisServer::start(&[]).await;
    let service = Service::start_with(&server.url(), Keys::plain(), |builder| {
        builder.partition(Partition::ByRule("per-tenant".into()))
    })
    .await;
    let limiter = service.limiter([
        Rule::new("per-user", Quota::fixed_window(1, MAX_PERIOD)),
        Rule::new("per-tenant", Quota::gcra(100, MAX_PERIOD)),
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
    }
}
