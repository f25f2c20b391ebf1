//! What was used under one version is used under the other.

use tollgate_core::{Key, Limiter, MAX_PERIOD, Quota, Rule};
use tollgate_redis::RedisStore;

use crate::support::{
    blocking_server::RedisServer,
    child::{ask, patient_store},
    quotas::every_algorithm,
};

/// A process with a version of the rules.
struct Version {
    limiter: Limiter,
    rule: &'static str,
}

impl Version {
    fn of(store: &RedisStore, rule: Rule, name: &'static str) -> Self {
        Self {
            limiter: Limiter::new(store.clone(), [rule]).expect("a valid rule"),
            rule: name,
        }
    }

    /// Whether `units` were taken, under a plan if there is one.
    async fn took(&self, plan: Option<&str>, units: u64) -> bool {
        let key = Key::of("client");
        let check = match plan {
            Some(plan) => self.limiter.check_with_plan(self.rule, plan, &key),
            None => self.limiter.check(self.rule, &key),
        };
        let check = check.expect("the rule is there").with_cost(units);
        ask(&self.limiter, &[check]).await.is_allowed()
    }

    async fn left(&self) -> u64 {
        let check = self.limiter.check(self.rule, &Key::of("client"));
        let check = check.expect("the rule is there").with_cost(0);
        self.limiter.peek(&[check]).await.verdicts()[0].remaining()
    }
}

/// Two stores share nothing but the server.
async fn old_and_new(server: &RedisServer) -> (RedisStore, RedisStore) {
    let address = format!("redis://{}", server.address());
    (patient_store(&address).await, patient_store(&address).await)
}

fn small_and_large() -> impl Iterator<Item = (Quota, Quota)> {
    let (small, large) = (
        every_algorithm(100, MAX_PERIOD),
        every_algorithm(300, MAX_PERIOD),
    );
    small.into_iter().zip(large)
}

#[tokio::test]
async fn a_limit_that_is_raised_keeps_what_was_used_for_both_versions() {
    let server = RedisServer::start(&[]);
    let (one, other) = old_and_new(&server).await;
    for (small, large) in small_and_large() {
        let name = small.algorithm().name();
        let old = Version::of(&one, Rule::new(name, small), name);
        let new = Version::of(&other, Rule::new(name, large), name);
        assert!(old.took(None, 60).await);
        assert_eq!(new.left().await, 240, "{small:?}");
        assert!(new.took(None, 30).await);
        assert_eq!(old.left().await, 10, "{small:?}");
        assert!(old.took(None, 10).await, "{small:?}");
        assert!(!old.took(None, 1).await, "{small:?}");
        assert!(new.took(None, 200).await, "{small:?}");
        assert!(!new.took(None, 1).await, "{small:?}");
        assert!(!old.took(None, 1).await, "{small:?}");
    }
}

#[tokio::test]
async fn a_limit_that_is_lowered_keeps_what_was_used_for_both_versions() {
    let server = RedisServer::start(&[]);
    let (one, other) = old_and_new(&server).await;
    for (small, large) in small_and_large() {
        let name = small.algorithm().name();
        let old = Version::of(&one, Rule::new(name, large), name);
        let new = Version::of(&other, Rule::new(name, small), name);
        assert!(old.took(None, 40).await);
        assert_eq!(new.left().await, 60, "{small:?}");
        assert!(old.took(None, 100).await);
        assert!(!new.took(None, 1).await, "{small:?}");
        assert_eq!(new.left().await, 0, "{small:?}");
    }
}

#[tokio::test]
async fn a_denial_of_the_version_with_the_smaller_limit_gives_nothing_back() {
    let server = RedisServer::start(&[]);
    let (one, other) = old_and_new(&server).await;
    for (small, large) in small_and_large() {
        let name = small.algorithm().name();
        let old = Version::of(&one, Rule::new(name, small), name);
        let new = Version::of(&other, Rule::new(name, large), name);
        let mut admitted = 0;
        for _ in 0..60 {
            admitted += if new.took(None, 10).await { 10 } else { 0 };
            admitted += u64::from(old.took(None, 1).await);
        }
        assert!(admitted <= 300, "{admitted} of 300: {small:?}");
    }
}

#[tokio::test]
async fn a_plan_that_changes_keeps_what_was_used_for_both_versions() {
    let server = RedisServer::start(&[]);
    let (one, other) = old_and_new(&server).await;
    for (small, large) in small_and_large() {
        let name = small.algorithm().name();
        let larger = every_algorithm(500, MAX_PERIOD);
        let larger = larger
            .into_iter()
            .find(|larger| larger.algorithm() == small.algorithm());
        let rule = Rule::new(name, small);
        let old = Version::of(&one, rule.clone().plan("gold", large), name);
        let gold = larger.expect("there is one of each");
        let new = Version::of(&other, rule.plan("gold", gold), name);
        assert!(old.took(Some("gold"), 90).await);
        assert!(new.took(None, 10).await, "{small:?}");
        assert!(!old.took(None, 1).await, "{small:?}");
        assert!(new.took(Some("gold"), 200).await, "{small:?}");
        assert!(!old.took(Some("gold"), 1).await, "{small:?}");
        assert!(!old.took(None, 1).await, "{small:?}");
        assert!(new.took(Some("gold"), 200).await, "{small:?}");
        assert!(!new.took(Some("gold"), 1).await, "{small:?}");
    }
}

#[tokio::test]
async fn another_algorithm_begins_anew_and_leaves_the_state_of_the_other_version_alone() {
    let server = RedisServer::start(&[]);
    let (one, other) = old_and_new(&server).await;
    // The three buckets are one algorithm with three constructors.
    let quotas = &every_algorithm(10, MAX_PERIOD)[..5];
    for before in quotas {
        for after in quotas.iter().filter(|after| *after != before) {
            let rule = "changed";
            let old = Version::of(&one, Rule::new(rule, *before), rule);
            let new = Version::of(&other, Rule::new(rule, *after), rule);
            assert!(old.took(None, 7).await, "{before:?} to {after:?}");
            assert!(new.took(None, 10).await, "{before:?} to {after:?}");
            assert_eq!(old.left().await, 3, "{before:?} to {after:?}");
            assert!(!new.took(None, 1).await, "{before:?} to {after:?}");
            assert!(old.took(None, 3).await, "{before:?} to {after:?}");
            assert!(!old.took(None, 1).await, "{before:?} to {after:?}");
            for version in [&old, &new] {
                let reset = version.limiter.reset(rule, &Key::of("client"));
                reset
                    .expect("the rule is there")
                    .await
                    .expect("Redis is there");
            }
        }
    }
}
