//! Names, and the quotas that are bound to them.

use super::every_algorithm;
use crate::{conformance::Subject, decision::Outcome, quota::Quota, rule::Rule};

pub async fn a_name_is_one_budget_for_all_who_bind_it(subject: &Subject) {
    for quota in every_algorithm(4) {
        let name = quota.algorithm().name();
        let one = subject.limiter([Rule::new(name, quota)]);
        let other = subject.limiter([Rule::new("another", quota), Rule::new(name, quota)]);
        assert!(one.took(name, "a", 2).await);
        assert!(other.took(name, "a", 2).await);
        assert!(!one.took(name, "a", 1).await, "{quota:?}");
        assert!(!other.took(name, "a", 1).await, "{quota:?}");
        other
            .0
            .bound()
            .reset(&[other.check("another", "a", 1)])
            .await
            .expect("the store is there");
    }
}

pub async fn a_raised_limit_keeps_what_was_used(subject: &Subject) {
    for (small, large) in every_algorithm(10).into_iter().zip(every_algorithm(100)) {
        let name = small.algorithm().name();
        let before = subject.limiter([Rule::new(name, small)]);
        assert!(before.took(name, "a", 10).await);
        assert!(!before.took(name, "a", 1).await);
        let after = subject.limiter([Rule::new(name, large)]);
        assert_eq!(after.left(name, "a").await, 90, "{small:?}");
        assert!(after.took(name, "a", 90).await, "{small:?}");
        assert!(!after.took(name, "a", 1).await, "{small:?}");
    }
}

pub async fn a_lowered_limit_keeps_what_was_used(subject: &Subject) {
    for (small, large) in every_algorithm(10).into_iter().zip(every_algorithm(100)) {
        let name = small.algorithm().name();
        let before = subject.limiter([Rule::new(name, large)]);
        assert!(before.took(name, "a", 4).await);
        assert!(before.took(name, "b", 50).await);
        let after = subject.limiter([Rule::new(name, small)]);
        assert_eq!(after.left(name, "a").await, 6, "{small:?}");
        assert!(!after.took(name, "a", 7).await, "{small:?}");
        assert!(after.took(name, "a", 6).await, "{small:?}");
        assert!(!after.took(name, "b", 1).await, "{small:?}");
    }
}

pub async fn another_algorithm_under_a_name_starts_fresh(subject: &Subject) {
    let [fixed, sliding, buckets, log, gcra, ..] = every_algorithm(3);
    for quota in [fixed, sliding, buckets, log, gcra] {
        let limiter = subject.limiter([Rule::new("one-name", quota)]);
        assert!(limiter.took("one-name", "a", 3).await, "{quota:?}");
        assert!(!limiter.took("one-name", "a", 1).await, "{quota:?}");
    }
}

pub async fn a_change_of_plan_keeps_what_was_used(subject: &Subject) {
    for (free, gold) in every_algorithm(10).into_iter().zip(every_algorithm(100)) {
        let name = free.algorithm().name();
        let limiter = subject.limiter([Rule::new(name, free).plan("gold", gold)]);
        assert!(limiter.took(name, "a", 4).await);
        let decision = limiter.ask(&[limiter.planned(name, "gold", "a", 5)]).await;
        assert!(decision.is_allowed(), "{free:?}");
        assert_eq!(decision.verdicts()[0].plan(), 1);
        assert_eq!(decision.verdicts()[0].remaining(), 91, "{free:?}");
        assert!(!limiter.took(name, "a", 2).await, "{free:?}");
        assert!(limiter.took(name, "a", 1).await, "{free:?}");
        let gold = limiter.peek(&[limiter.planned(name, "gold", "a", 0)]).await;
        assert_eq!(gold.verdicts()[0].remaining(), 90, "{free:?}");
    }
}

pub async fn a_denial_under_a_small_plan_gives_nothing_back_to_a_large_one(subject: &Subject) {
    for (free, gold) in every_algorithm(10).into_iter().zip(every_algorithm(100)) {
        let name = free.algorithm().name();
        let limiter = subject.limiter([Rule::new(name, free).plan("gold", gold)]);
        let golden = [limiter.planned(name, "gold", "a", 10)];
        let mut passed = 0;
        for _ in 0..30 {
            passed += u64::from(limiter.ask(&golden).await.is_allowed());
            let small = limiter.take(name, "a", 1).await;
            assert!(!small.is_allowed(), "{free:?}");
            assert_eq!(small.verdicts()[0].remaining(), 0, "{free:?}");
        }
        assert_eq!(passed, 10, "{free:?}");
    }
}

pub async fn an_unlimited_plan_takes_nothing(subject: &Subject) {
    for quota in every_algorithm(3) {
        let name = quota.algorithm().name();
        let rule = Rule::new(name, quota).plan("staff", Quota::unlimited());
        let limiter = subject.limiter([rule]);
        for _ in 0..5 {
            let decision = limiter
                .ask(&[limiter.planned(name, "staff", "a", 1_000)])
                .await;
            assert!(decision.is_allowed(), "{quota:?}");
            assert_eq!(
                decision.verdicts()[0].outcome(),
                Outcome::NotAsked,
                "{quota:?}"
            );
        }
        assert_eq!(limiter.left(name, "a").await, 3, "{quota:?}");
    }
}

pub async fn an_unlimited_plan_does_not_stand_for_a_limited_one(subject: &Subject) {
    for quota in every_algorithm(3) {
        let name = quota.algorithm().name();
        let rule = Rule::new(name, quota).plan("staff", Quota::unlimited());
        let limiter = subject.limiter([rule]);
        let checks = [
            limiter.planned(name, "staff", "a", 1),
            limiter.check(name, "a", 2),
        ];
        assert!(limiter.ask(&checks).await.is_allowed(), "{quota:?}");
        assert!(!limiter.ask(&checks).await.is_allowed(), "{quota:?}");
        assert_eq!(limiter.left(name, "a").await, 1, "{quota:?}");
    }
}
