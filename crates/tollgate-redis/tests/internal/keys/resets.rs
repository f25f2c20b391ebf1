//! Resets of states that lie with the client of another rule.

use std::time::Duration;

use crate::{Keys, Partition, RedisStore};
use tollgate_core::{Check, HOUR, Key, Limiter, MAX_PERIOD, Quota, Rule, StoreErrorKind};
use tollgate_test_servers::blocking_server::RedisServer;

use crate::internal_tests::keys::secret;

async fn limiter(address: &str, keys: Keys) -> Limiter {
    let store = RedisStore::builder(address, "resets", keys)
        .deadline(Duration::from_secs(20))
        .partition(Partition::ByRule("per-tenant".into()))
        .connect()
        .expect("a valid address, a deadline and a runtime");
    store.connected().await;
    let rules = [
        Rule::new("per-address", Quota::gcra(2, MAX_PERIOD)),
        Rule::new("per-tenant", Quota::fixed_window(9, MAX_PERIOD)),
        Rule::new("log-in", Quota::sliding_log(1, HOUR)),
    ];
    Limiter::new(store, rules).expect("rules it can serve")
}

fn check(limiter: &Limiter, rule: &str, who: &str) -> Check {
    limiter.check(rule, &Key::of([who])).expect("it is there")
}

async fn left(limiter: &Limiter, checks: &[Check]) -> Vec<u64> {
    let look: Vec<_> = checks.iter().map(|check| check.with_cost(0)).collect();
    let decision = limiter.peek(&look).await;
    let verdicts = decision.verdicts().iter();
    verdicts.map(|verdict| verdict.remaining()).collect()
}

/// Two tenants with a client at one address, who has used up what there is with both.
async fn resets_reach_the_states_of_a_tenant(limiter: &Limiter) {
    let of = |tenant: &str| {
        [
            ("per-address", "192.0.2.1"),
            ("per-tenant", tenant),
            ("log-in", "ada"),
        ]
        .map(|(rule, who)| check(limiter, rule, who))
    };
    let (acme, globex) = (of("acme"), of("globex"));
    for checks in [&acme, &globex] {
        assert!(limiter.acquire(checks).await.is_allowed());
        assert!(!limiter.acquire(checks).await.is_allowed());
        assert_eq!(left(limiter, checks).await, [1, 8, 0]);
    }

    // Without the tenant nothing is found, and the error says what is missing.
    let alone = limiter
        .reset("log-in", &Key::of(["ada"]))
        .expect("it is there");
    let error = alone.await.expect_err("it lies with a tenant");
    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
    let text = error.to_string();
    assert!(
        text.contains("\"per-tenant\"") && text.contains("reset_all"),
        "{text}"
    );
    assert_eq!(left(limiter, &acme).await, [1, 8, 0]);

    // The log-in of one tenant, and not the tenant's own.
    let log_in = [acme[2], acme[1].with_cost(0)];
    assert!(limiter.reset_all(&log_in).await.expect("Redis is there"));
    assert_eq!(left(limiter, &acme).await, [1, 8, 1]);
    assert!(
        !limiter
            .reset_all(&log_in)
            .await
            .expect("nothing is left to reset")
    );
    assert!(
        limiter.acquire(&acme).await.is_allowed(),
        "no denial is remembered"
    );
    assert_eq!(left(limiter, &globex).await, [1, 8, 0]);

    // All of the other.
    assert!(limiter.reset_all(&globex).await.expect("Redis is there"));
    assert_eq!(left(limiter, &globex).await, [2, 9, 1]);
    assert_eq!(left(limiter, &acme).await, [0, 7, 0]);

    // The tenant is found alone, and so is what was asked about without a tenant.
    let tenant = limiter
        .reset("per-tenant", &Key::of(["acme"]))
        .expect("it is there");
    assert!(tenant.await.expect("Redis is there"));
    assert_eq!(left(limiter, &acme).await, [0, 9, 0]);
    assert!(limiter.acquire(&acme[2..]).await.is_allowed());
    let log_in = limiter
        .reset("log-in", &Key::of(["ada"]))
        .expect("it is there");
    assert!(log_in.await.expect("Redis is there"));
    assert!(limiter.acquire(&acme[2..]).await.is_allowed());
}

#[tokio::test]
async fn a_reset_with_the_checks_of_a_request_reaches_what_lies_with_a_tenant() {
    let server = RedisServer::start(&[]);
    let address = format!("redis://127.0.0.1:{}", server.port());
    let hashed = Keys::hashed(secret(1));
    let rotating = Keys::hashed(secret(1)).previous(secret(2));
    for keys in [hashed, rotating.expect("another"), Keys::plain()] {
        let limiter = limiter(&address, keys).await;
        resets_reach_the_states_of_a_tenant(&limiter).await;
        // Another way of writing keys begins anew; the next of two secrets does not.
        let reset = |tenant| {
            let checks = [
                ("per-address", "192.0.2.1"),
                ("per-tenant", tenant),
                ("log-in", "ada"),
            ];
            limiter.reset_all(&checks.map(|(rule, who)| check(&limiter, rule, who)))
        };
        assert!(reset("acme").await.expect("Redis is there"));
        let _ = limiter
            .reset("log-in", &Key::of(["ada"]))
            .expect("it is there")
            .await;
    }
}
