//! A key that is reset while units of it are out in leases.

use std::time::Duration;

use tollgate_core::{Consistency, Key, LeaseShare, Limiter, MINUTE, Quota, Rule, Source};
use tollgate_redis::{Keys, RedisStore};
use tollgate_test_servers::blocking_server::RedisServer;

const LIMIT: u64 = 1_000;

fn quotas() -> [Quota; 3] {
    let long = 60 * 24 * 365 * MINUTE;
    [
        Quota::token_bucket(LIMIT).refill(1, 60 * MINUTE),
        Quota::fixed_window(LIMIT, long),
        Quota::sliding_window(LIMIT, long),
    ]
}

/// A process: a store of its own.
async fn process(server: &RedisServer, quota: Quota) -> Limiter {
    let url = format!("redis://{}", server.address());
    let store = RedisStore::builder(&url, "resets", Keys::plain())
        .deadline(Duration::from_secs(10))
        .without_deny_cache()
        .connect()
        .expect("a valid address, a deadline and a runtime");
    store.connected().await;
    let rule = Rule::new("rule", quota).consistency(Consistency::Leased {
        share: LeaseShare::percent(50),
    });
    Limiter::new(store, [rule]).expect("a valid rule")
}

/// Asks until a request is answered from a lease, or denied. Gives the units that were let through.
async fn take_while(limiter: &Limiter, goes_on: impl Fn(bool, Source) -> bool) -> u64 {
    let check = limiter.check("rule", &Key::of("ada"));
    let check = [check.expect("the rule is there")];
    let mut taken = 0;
    loop {
        let decision = limiter.acquire(&check).await;
        taken += u64::from(decision.is_allowed());
        if !goes_on(decision.is_allowed(), decision.verdicts()[0].source()) {
            return taken;
        }
    }
}

async fn reset(limiter: &Limiter) {
    let reset = limiter.reset("rule", &Key::of("ada"));
    reset
        .expect("the rule is there")
        .await
        .expect("Redis is there");
}

async fn left(limiter: &Limiter) -> u64 {
    let look = limiter.check("rule", &Key::of("ada"));
    let look = [look.expect("the rule is there").with_cost(0)];
    limiter.peek(&look).await.verdicts()[0].remaining()
}

#[tokio::test]
async fn leases_of_other_processes_are_spent_within_the_limit() {
    let server = RedisServer::start(&[]);
    for quota in quotas() {
        let (other, resetting) = (process(&server, quota).await, process(&server, quota).await);
        take_while(&other, |_, source| source != Source::Lease).await;
        reset(&resetting).await;
        assert!(left(&resetting).await < LIMIT, "{quota:?}");
        let mut taken = take_while(&resetting, |allowed, _| allowed).await;
        // From the lease that it had before.
        taken += take_while(&other, |allowed, _| allowed).await;
        taken += take_while(&resetting, |allowed, _| allowed).await;
        assert!(taken <= LIMIT, "{taken} of {quota:?}");
    }
}
