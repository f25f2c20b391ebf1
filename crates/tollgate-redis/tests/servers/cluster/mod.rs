//! The store on a cluster: three primaries and their replicas.

mod access;
mod deadline;
mod failover;
mod held_slots;
mod majority;
mod reservations;
mod slots;
mod waiting;

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::task::JoinSet;
use tollgate_core::{
    Key, Limiter, MAX_PERIOD, Outcome, Quota, Rule, RuleErrorKind, RuleSet, Source, Store,
};
use tollgate_redis::{Keys, Partition, RedisStore, Secret};
use tollgate_test_servers::redis_cluster::RedisCluster;

fn secret(byte: u8) -> Secret {
    Secret::from_bytes([byte; 32]).expect("it is long enough")
}

async fn store(cluster: &RedisCluster, namespace: &str, partition: Partition) -> RedisStore {
    let store = RedisStore::builder(cluster.url(), namespace, Keys::hashed(secret(7)))
        .partition(partition)
        .deadline(Duration::from_secs(60))
        .connect()
        .expect("a valid address");
    store.connected().await;
    store
}

fn rules() -> [Rule; 2] {
    [
        Rule::new("per-ip", Quota::fixed_window(10, MAX_PERIOD)),
        Rule::new("per-account", Quota::fixed_window(2, MAX_PERIOD)),
    ]
}

fn key(name: impl std::fmt::Display) -> Key {
    Key::of([name.to_string()])
}

/// One cluster for all of it: it takes seconds to form.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_one_limit() {
    let cluster = RedisCluster::start_patient().await;
    exactly_the_limit_passes(&cluster).await;
    a_request_in_one_slot_is_one_step(&cluster).await;
    what_was_taken_goes_back_when_a_later_slot_denies(&cluster).await;
    a_tenant_is_a_partition(&cluster).await;
    a_cap_on_new_keys_holds_in_each_partition(&cluster).await;
    held_slots::slots_go_back_when_a_later_step_denies(&cluster).await;
    held_slots::slots_are_renewed_wherever_they_lie(&cluster).await;
    reservations::a_reservation_lies_in_one_hash_slot(&cluster).await;
    waiting::requests_wait_in_the_order_of_their_server(&cluster).await;
    what_a_cluster_cannot_do_is_refused(&cluster).await;
    #[cfg(feature = "metrics")]
    a_namespace_is_measured_on_each_server(&cluster).await;
}

#[cfg(feature = "metrics")]
async fn a_namespace_is_measured_on_each_server(cluster: &RedisCluster) {
    let clients = 90;
    let partition = Partition::Key;
    let limiter = Limiter::new(store(cluster, "sized", partition.clone()).await, rules());
    let limiter = limiter.expect("valid rules");
    for client in 0..clients {
        let check = limiter.check("per-ip", &key(client)).expect("it is there");
        assert!(limiter.acquire(&[check]).await.is_allowed());
    }
    let _measures = RedisStore::builder(cluster.url(), "sized", Keys::hashed(secret(7)))
        .partition(partition)
        .measure_namespace(100_000)
        .connect()
        .expect("a valid address");
    let (_, server) = cluster.slot("{sized}:size").await;
    let found = tollgate_test_servers::eventually::eventually("it is measured", || async {
        let found = cluster.say(server, &["GET", "{sized}:size"]).await;
        let text = found.lines().nth(1)?.to_owned();
        Some(text)
    })
    .await;
    let keys: u64 = found
        .split(' ')
        .next()
        .and_then(|keys| keys.parse().ok())
        .expect("a number");
    // Beside the states: who measures, the instances and their quotas.
    assert!((clients + 1..=clients + 4).contains(&keys), "{found}");
}

async fn exactly_the_limit_passes(cluster: &RedisCluster) {
    for (namespace, partition) in [("one", Partition::One), ("keys", Partition::Key)] {
        let rule = Rule::new("all", Quota::fixed_window(50, MAX_PERIOD));
        let limiter = Limiter::new(store(cluster, namespace, partition).await, [rule]);
        let limiter = limiter.expect("a valid rule");
        let mut tasks = JoinSet::new();
        for task in 0..64 {
            let limiter = limiter.clone();
            tasks.spawn(async move {
                let mut passed = [0; 8];
                for client in (0..8).cycle().skip(task % 8).take(40) {
                    let check = limiter.check("all", &key(client)).expect("it is there");
                    passed[client] += u32::from(limiter.acquire(&[check]).await.is_allowed());
                }
                passed
            });
        }
        let all = tasks
            .join_all()
            .await
            .into_iter()
            .fold([0; 8], |sum, passed| {
                std::array::from_fn(|client| sum[client] + passed[client])
            });
        assert_eq!(all, [50; 8], "{namespace}");
    }
}

async fn a_request_in_one_slot_is_one_step(cluster: &RedisCluster) {
    let limiter = Limiter::new(store(cluster, "step", Partition::One).await, rules());
    let limiter = limiter.expect("valid rules");
    left_after_three(&limiter, 8).await;
}

async fn what_was_taken_goes_back_when_a_later_slot_denies(cluster: &RedisCluster) {
    let limiter = Limiter::new(store(cluster, "turns", Partition::Key).await, rules());
    let limiter = limiter.expect("valid rules");
    left_after_three(&limiter, 8).await;
}

/// Three requests of one account from one address. The third is denied; the address has `expected` units left then.
async fn left_after_three(limiter: &Limiter, expected: u64) {
    let checks = [
        limiter
            .check("per-ip", &key("192.0.2.1"))
            .expect("it is there"),
        limiter
            .check("per-account", &key("ada"))
            .expect("it is there"),
    ];
    for outcome in [Outcome::Allow, Outcome::Allow, Outcome::Deny] {
        let decision = limiter.acquire(&checks).await;
        assert_eq!(decision.outcome(), outcome);
        assert_eq!(decision.verdicts().len(), 2);
        assert_eq!(decision.verdicts()[1].rule(), 1);
    }
    let until = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        // What goes back is on its way; no call waits for it.
        let looked = limiter.peek(&[checks[0].with_cost(0)]).await;
        if looked.verdicts()[0].remaining() == expected {
            return;
        }
        assert!(tokio::time::Instant::now() < until, "{looked:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn a_tenant_is_a_partition(cluster: &RedisCluster) {
    let partition = Partition::ByRule("per-tenant".into());
    let rules = [
        Rule::new("per-user", Quota::fixed_window(2, MAX_PERIOD)),
        Rule::new("per-tenant", Quota::fixed_window(10, MAX_PERIOD)),
    ];
    let limiter = Limiter::new(store(cluster, "tenants", partition).await, rules);
    let limiter = limiter.expect("valid rules");
    for tenant in ["acme", "initech"] {
        let checks = [
            limiter.check("per-user", &key("ada")).expect("it is there"),
            limiter
                .check("per-tenant", &key(tenant))
                .expect("it is there"),
        ];
        for allowed in [true, true, false] {
            assert_eq!(limiter.acquire(&checks).await.is_allowed(), allowed);
        }
        // One step: the denied request has taken nothing, and nothing had to go back.
        let left = limiter.peek(&checks.map(|check| check.with_cost(0))).await;
        assert_eq!(left.verdicts()[1].remaining(), 8);
    }
    let check = limiter.reset("per-user", &key("ada")).expect("it is there");
    assert!(
        check.await.is_err(),
        "its state is not found without the tenant"
    );
}

async fn a_cap_on_new_keys_holds_in_each_partition(cluster: &RedisCluster) {
    const CAP: u32 = 5;
    const CLIENTS: u64 = 400;
    const LIMIT: u64 = 10;

    for (namespace, partition) in [
        ("capped-one", Partition::One),
        ("capped-key", Partition::Key),
        ("capped-by", Partition::ByRule("per-tenant".into())),
    ] {
        let store = RedisStore::builder(cluster.url(), namespace, Keys::hashed(secret(7)))
            .partition(partition.clone())
            .cap_new_keys("per-ip", CAP)
            .deadline(Duration::from_secs(60))
            .connect()
            .expect("a valid address");
        store.connected().await;
        let rules = [
            Rule::new("per-ip", Quota::fixed_window(LIMIT, MAX_PERIOD)),
            Rule::new("per-tenant", Quota::fixed_window(1_000_000, MAX_PERIOD)),
        ];
        let limiter = Limiter::new(store, rules).expect("valid rules");
        let check = |rule, key: Key| limiter.check(rule, &key).expect("it is there");
        let began = tokio::time::Instant::now();
        let mut allowed = 0;
        for client in 0..CLIENTS {
            let mut checks = vec![check("per-ip", key(client))];
            // Some requests are of one of two tenants, and others of none.
            if client % 3 > 0 && namespace == "capped-by" {
                checks.push(check("per-tenant", key(client % 3)));
            }
            let decision = limiter.acquire(&checks).await;
            for verdict in decision.verdicts() {
                assert_eq!(verdict.source(), Source::Store, "{namespace}");
                assert_ne!(verdict.outcome(), Outcome::Failed, "{namespace}");
            }
            allowed += u64::from(decision.is_allowed());
        }
        let most = f64::from(CAP) * (1.0 + began.elapsed().as_secs_f64());
        let mut names = Vec::new();
        for server in 0..3 {
            let pattern = format!("*{namespace}*:per-ip:*");
            let keys = cluster.say(server, &["KEYS", &pattern]).await;
            let keys = keys.lines().filter(|line| line.contains(":per-ip:"));
            names.extend(keys.map(str::to_owned));
        }
        // By the name of the bucket, which is the same in each slot and with each tenant.
        let mut by_name = HashMap::<_, u64>::new();
        for name in &names {
            let mut client = name
                .split(['+', ':', '{', '}'])
                .filter(|part| part.len() == 22);
            *by_name
                .entry(client.next_back().expect("a client"))
                .or_default() += 1;
        }
        let buckets = by_name.values().copied().max().unwrap_or_default();
        let created = names.len() as u64 - buckets;
        assert!(
            created >= 1 && created as f64 <= most,
            "{created}, at most {most}: {names:?}"
        );
        if partition == Partition::One {
            assert_eq!((buckets, allowed), (1, created + LIMIT));
        } else {
            assert!(buckets > 1, "{names:?}");
        }
    }
}

async fn what_a_cluster_cannot_do_is_refused(cluster: &RedisCluster) {
    let keys = Keys::hashed(secret(8))
        .previous(secret(7))
        .expect("another one");
    let store = RedisStore::builder(cluster.url(), "change", keys)
        .partition(Partition::Key)
        .connect()
        .expect("a runtime");
    let rules = Arc::new(RuleSet::new(rules()).expect("valid rules"));
    let error = store
        .bind(rules)
        .expect_err("states would change their slots");
    assert_eq!(error.kind(), RuleErrorKind::Store);
    assert!(error.to_string().contains("Partition::One"), "{error}");
}
