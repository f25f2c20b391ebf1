//! A request of two rules, and the state of one is not ours.

use redis::Value;
use tollgate_core::{
    Check, Decision, Key, Limiter, MAX_PERIOD, OnStoreError, Outcome, Quota, Reason, Rule,
};
use tollgate_redis::{BreakerState, RedisStore};
use tollgate_test_servers::{
    blocking_server::RedisServer, eventually::eventually, redis_client::RedisClient,
};
use tollgate_test_services::child::patient_store;

const LIMIT: u64 = 100;

/// Two rules for one client. Of the first the key holds a hash.
struct Broken {
    _server: RedisServer,
    store: RedisStore,
    limiter: Limiter,
}

impl Broken {
    async fn start(answer: OnStoreError) -> Self {
        let server = RedisServer::start(&[]);
        let store = patient_store(&format!("redis://{}", server.address())).await;
        let rules = [
            Rule::new("broken", Quota::gcra(LIMIT, MAX_PERIOD)).on_store_error(answer),
            Rule::new("sound", Quota::fixed_window(LIMIT, MAX_PERIOD)),
        ];
        let limiter = Limiter::new(store.clone(), rules).expect("the rules are valid");
        let broken = Self {
            _server: server,
            store,
            limiter,
        };
        assert!(broken.take(&[broken.check("broken")]).await.is_allowed());
        let mut connection = RedisClient::connect(broken._server.address());
        let Value::Array(keys) = connection.say("KEYS {processes}:*:*:*") else {
            panic!("KEYS answers a list");
        };
        let [Value::BulkString(key)] = &keys[..] else {
            panic!("{keys:?} is not one key");
        };
        let _ = connection.command([&b"DEL"[..], key]);
        let _ = connection.command([&b"HSET"[..], key, b"field", b"value"]);
        broken
    }

    fn check(&self, rule: &str) -> Check {
        let check = self.limiter.check(rule, &Key::of("client"));
        check.expect("the rule is there")
    }

    async fn take(&self, checks: &[Check]) -> Decision {
        self.limiter.acquire(checks).await
    }

    async fn both(&self) -> Decision {
        self.take(&[self.check("broken"), self.check("sound")])
            .await
    }

    /// Waits until so many units of the sound rule are left: what is given back is on its way for a while.
    async fn is_left(&self, units: u64) {
        eventually(&format!("{units} units are left"), || async {
            let looked = self.limiter.peek(&[self.check("sound").with_cost(0)]).await;
            (looked.verdicts()[0].remaining() == units).then_some(())
        })
        .await;
    }

    fn is_trusted(&self) {
        assert_eq!(self.store.breaker(), BreakerState::Closed);
    }
}

#[tokio::test]
async fn if_its_rule_denies_the_other_gets_its_units_back() {
    let broken = Broken::start(OnStoreError::Deny).await;
    for _ in 0..20 {
        let decision = broken.both().await;
        assert_eq!(decision.reason(), Some(Reason::StoreFailed));
        broken.is_left(LIMIT).await;
    }
    broken.is_trusted();
}

#[tokio::test]
async fn if_its_rule_lets_pass_the_other_counts() {
    for answer in [OnStoreError::Allow, OnStoreError::Degraded] {
        let broken = Broken::start(answer).await;
        for _ in 0..LIMIT {
            let decision = broken.both().await;
            assert!(decision.is_allowed() && decision.is_degraded());
        }
        let decision = broken.both().await;
        assert_eq!(decision.reason(), Some(Reason::Quota));
        assert_eq!(decision.verdicts()[0].outcome(), Outcome::NotDecided);
        assert_eq!(
            broken.limiter.admitted_in_fallback("broken").ok(),
            Some(LIMIT)
        );
        assert_eq!(broken.limiter.admitted_in_fallback("sound").ok(), Some(0));
        broken.is_trusted();
    }
}

#[tokio::test]
async fn if_its_rule_counts_here_what_is_denied_here_is_given_back_there() {
    let broken = Broken::start(OnStoreError::Cap(Quota::fixed_window(5, MAX_PERIOD))).await;
    for _ in 0..5 {
        assert!(broken.both().await.is_allowed());
    }
    for _ in 0..20 {
        assert!(!broken.both().await.is_allowed());
    }
    broken.is_left(LIMIT - 5).await;
    assert_eq!(broken.limiter.admitted_in_fallback("broken").ok(), Some(5));
    broken.is_trusted();
}
