//! Clusters and names: what is granted and reported under each partition and each way of writing keys.

use tokio::time::Instant;
use tollgate_core::{Consistency, Key, Limiter, MAX_PERIOD, Outcome, Quota, Rule, Source};
use tollgate_redis::{Keys, Partition, RedisStoreBuilder, Secret};
use tollgate_test_servers::{
    eventually::eventually, redis_cluster::RedisCluster, redis_server::RedisServer,
};

use crate::{
    load::{LEASED, eventual},
    service::{Service, check},
};

const LIMIT: u64 = 300;

fn secret(byte: u8) -> Secret {
    Secret::from_bytes([byte; 32]).expect("it is long enough")
}

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

#[tokio::test]
async fn a_rule_that_cannot_have_what_it_asks_for_is_exact() {
    let server = RedisServer::start(&[]).await;
    let mut service = Service::start_with(&server.url(), Keys::plain(), |builder| {
        builder.cap_new_keys("capped", 1_000)
    })
    .await;
    let rules = [
        Rule::new("log", Quota::sliding_log(60, MAX_PERIOD)).consistency(LEASED),
        Rule::new("logged", Quota::sliding_log(60, MAX_PERIOD)).consistency(eventual(20)),
        Rule::new("buckets", Quota::sliding_buckets(60, MAX_PERIOD)).consistency(LEASED),
        Rule::new("small", Quota::gcra(10, MAX_PERIOD)).consistency(LEASED),
        Rule::new("capped", quota()).consistency(eventual(20)),
    ];
    let limiter = service.limiter(rules.clone());
    for rule in rules {
        is_exact(&mut service, &limiter, rule.name(), rule.quota().limit()).await;
    }
}

/// While a flood of invented clients is beyond the cap, those that are known go on with their leases, and no more keys are
/// created than the cap allows.
#[tokio::test]
async fn a_rule_with_a_cap_on_new_keys_has_leases() {
    const CAP: u32 = 4;

    let server = RedisServer::start(&[]).await;
    let url = server.url();
    let start = || {
        let cap = |builder: RedisStoreBuilder| builder.cap_new_keys("capped", CAP);
        Service::start_with(&url, Keys::plain(), cap)
    };
    let (mut one, mut other) = (start().await, start().await);
    eventually("they know of each other", || async {
        let all = [&one, &other].map(|service| service.store.instances());
        (all == [2, 2]).then_some(())
    })
    .await;
    for quota in [quota(), Quota::fixed_window(LIMIT, MAX_PERIOD)] {
        let began = Instant::now();
        let rule = Rule::new("capped", quota).consistency(LEASED);
        let limiters = [one.limiter([rule.clone()]), other.limiter([rule])];
        let known = [check(&limiters[0], "capped"), check(&limiters[1], "capped")];
        (one.net, other.net) = (0, 0);
        one.take_until(&limiters[0], known[0], Source::Lease).await;
        let (mut invented, mut from_leases) = (0, 0);
        for number in 0..2 * LIMIT {
            let key = Key::of([format!("invented-{number}")]);
            let check = limiters[1].check("capped", &key).expect("it is there");
            let decision = limiters[1].acquire(&[check]).await;
            assert_ne!(decision.verdicts()[0].source(), Source::Lease);
            invented += u64::from(decision.is_allowed());
            if number % 10 == 0 {
                other.clock.set(one.clock.now());
                let decision = one.take(&limiters[0], known[0], 1).await;
                from_leases += u64::from(decision.verdicts()[0].source() == Source::Lease);
            }
        }
        assert!(from_leases > 20, "{from_leases}");
        one.drain(&limiters[0], known[0]).await;
        other.clock.set(one.clock.now());
        other.drain(&limiters[1], known[1]).await;
        // Of the one client no unit more than its quota, and none lost.
        assert_eq!(one.net + other.net, LIMIT, "{quota:?}");

        let keys = server.command(&["KEYS", "*:capped:*"]).await;
        // Two are the known client and the overflow bucket.
        let created = keys.matches(":capped:").count() as u64 - 2;
        let most = f64::from(CAP) * (1.0 + began.elapsed().as_secs_f64());
        assert!(created as f64 <= most, "{created}, at most {most}");
        // Each of them took one unit, and all others what one client may.
        assert_eq!(invented, created + LIMIT, "{quota:?}");
        assert_eq!(server.command(&["FLUSHALL"]).await, "+OK\r\n");
    }
}

#[tokio::test]
async fn keys_may_be_written_in_any_way() {
    let server = RedisServer::start(&[]).await;
    let url = server.url();
    let start = |keys| Service::start_with(&url, keys, std::convert::identity);
    let (one, other) = (start(Keys::plain()).await, start(Keys::plain()).await);
    is_one_limit(one, other, "plain").await;
    // The steps of a change of secrets, two of which are there at once.
    let before = || Keys::hashed(secret(1));
    let next = || before().next(secret(2)).expect("another secret");
    let after = || {
        Keys::hashed(secret(2))
            .previous(secret(1))
            .expect("another secret")
    };
    is_one_limit(start(before()).await, start(next()).await, "begun").await;
    is_one_limit(start(next()).await, start(before()).await, "beginning").await;
    is_one_limit(start(next()).await, start(after()).await, "changed").await;
    is_one_limit(start(after()).await, start(next()).await, "changing").await;
    is_one_limit(start(after()).await, start(after()).await, "done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_grants_and_counts_under_each_partition() {
    let cluster = RedisCluster::start().await;
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
async fn a_rule_that_decides_about_the_slot_is_decided_with_the_others_of_its_request() {
    let server = RedisServer::start(&[]).await;
    for (rule, source) in rules("tenant") {
        let name = rule.name().to_owned();
        let mut service = Service::start_with(&server.url(), Keys::plain(), |builder| {
            builder.partition(Partition::ByRule(name.as_str().into()))
        })
        .await;
        let user = format!("{name}-user");
        let limiter =
            service.limiter([rule, Rule::new(&*user, Quota::fixed_window(20, MAX_PERIOD))]);
        let checks = [check(&limiter, &name), check(&limiter, &user)];
        let mut admitted = 0;
        for _ in 0..3 {
            // The tenant has units in this process.
            service.take_until(&limiter, checks[0], source).await;
            for _ in 0..15 {
                service.clock.advance(std::time::Duration::from_millis(1));
                admitted += u64::from(limiter.acquire(&checks).await.is_allowed());
            }
        }
        assert_eq!(admitted, 20, "{name}");
    }
}
