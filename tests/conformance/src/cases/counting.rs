//! One rule, one check.

use tollgate_core::{Key, Outcome, Reason, Retry};

use crate::subject::Subject;

pub async fn the_limit_passes_and_the_next_unit_does_not(subject: &Subject) {
    for (limiter, rule, quota) in subject.each(10) {
        for left in (0..10).rev() {
            let decision = limiter.take(rule, "a", 1).await;
            assert!(decision.is_allowed(), "{quota:?}: {decision:?}");
            assert_eq!(decision.reason(), None);
            assert_eq!(decision.retry(), Retry::Now);
            assert_eq!(decision.verdicts()[0].remaining(), left, "{quota:?}");
        }
        let decision = limiter.take(rule, "a", 1).await;
        assert_eq!(decision.outcome(), Outcome::Deny, "{quota:?}");
        assert_eq!(decision.reason(), Some(Reason::Quota), "{quota:?}");
        assert!(matches!(decision.retry(), Retry::After(_)), "{quota:?}");
        assert_eq!(decision.verdicts()[0].remaining(), 0, "{quota:?}");
    }
}

pub async fn a_denial_takes_nothing(subject: &Subject) {
    for (limiter, rule, quota) in subject.each(10) {
        assert!(limiter.took(rule, "a", 8).await);
        for _ in 0..5 {
            let denied = limiter.take(rule, "a", 3).await;
            assert_eq!(denied.outcome(), Outcome::Deny, "{quota:?}");
            assert_eq!(denied.verdicts()[0].remaining(), 2, "{quota:?}");
        }
        assert!(limiter.took(rule, "a", 2).await, "{quota:?}");
        for _ in 0..5 {
            assert!(!limiter.took(rule, "a", 1).await, "{quota:?}");
        }
    }
}

pub async fn a_large_denied_request_does_not_deny_small_ones(subject: &Subject) {
    for (limiter, rule, quota) in subject.each(10) {
        assert!(limiter.took(rule, "a", 4).await);
        for left in (0..6).rev() {
            assert!(!limiter.took(rule, "a", 10).await, "{quota:?}");
            let small = limiter.take(rule, "a", 1).await;
            assert!(small.is_allowed(), "{quota:?}");
            assert_eq!(small.verdicts()[0].remaining(), left, "{quota:?}");
        }
    }
}

pub async fn costs_are_summed(subject: &Subject) {
    for (limiter, rule, quota) in subject.each(100) {
        for cost in [1, 40, 7, 30, 2] {
            assert!(limiter.took(rule, "a", cost).await, "{quota:?}");
        }
        assert_eq!(limiter.left(rule, "a").await, 20, "{quota:?}");
        assert!(!limiter.took(rule, "a", 21).await, "{quota:?}");
        assert!(limiter.took(rule, "a", 20).await, "{quota:?}");
    }
}

pub async fn a_cost_of_zero_never_blocks_and_takes_nothing(subject: &Subject) {
    for (limiter, rule, quota) in subject.each(3) {
        let fresh = limiter.take(rule, "a", 0).await;
        assert_eq!(fresh.verdicts()[0].remaining(), 3, "{quota:?}");
        assert!(limiter.took(rule, "a", 3).await);
        for _ in 0..3 {
            let used_up = limiter.take(rule, "a", 0).await;
            assert!(used_up.is_allowed(), "{quota:?}");
            assert_eq!(used_up.verdicts()[0].remaining(), 0, "{quota:?}");
        }
    }
}

pub async fn a_cost_of_zero_creates_no_state(subject: &Subject) {
    for (limiter, rule, quota) in subject.each(3) {
        let keys = || limiter.0.rule_store().usage(0).map(|usage| usage.keys);
        let before = keys();
        assert!(limiter.took(rule, "a", 0).await);
        assert_eq!(keys(), before, "{quota:?}");
        let peeked = limiter.peek(&[limiter.check(rule, "a", 3)]).await;
        assert_eq!(peeked.outcome(), Outcome::Allow, "{quota:?}");
    }
}

pub async fn a_cost_above_the_limit_is_never(subject: &Subject) {
    for (limiter, rule, quota) in subject.each(10) {
        for (taken, left) in [(0, 10), (4, 6)] {
            assert!(limiter.took(rule, "a", taken).await);
            for cost in [11, 1_000_000, u64::MAX] {
                let decision = limiter.take(rule, "a", cost).await;
                assert_eq!(decision.outcome(), Outcome::Deny, "{quota:?}");
                assert_eq!(decision.reason(), Some(Reason::Never), "{quota:?}");
                assert_eq!(decision.retry(), Retry::Never, "{quota:?}");
                assert_eq!(decision.verdicts()[0].remaining(), left, "{quota:?}");
            }
        }
    }
}

pub async fn a_peek_takes_nothing_and_says_what_an_acquire_would(subject: &Subject) {
    for (limiter, rule, quota) in subject.each(5) {
        for cost in [2, 2, 2, 1, 1, 6] {
            let check = [limiter.check(rule, "a", cost)];
            let mut peeked = Vec::new();
            for _ in 0..3 {
                peeked.push(limiter.peek(&check).await);
            }
            let decision = limiter.acquire(&check).await;
            for peeked in peeked {
                assert_eq!(peeked.outcome(), decision.outcome(), "{quota:?}");
                assert_eq!(peeked.reason(), decision.reason(), "{quota:?}");
                let (one, other) = (peeked.verdicts()[0], decision.verdicts()[0]);
                assert_eq!(one.outcome(), other.outcome(), "{quota:?}");
                assert_eq!(one.remaining(), other.remaining(), "{quota:?}");
            }
        }
    }
}

pub async fn a_key_counts_for_itself(subject: &Subject) {
    for (limiter, rule, quota) in subject.each(2) {
        for who in ["a", "b", ""] {
            assert!(limiter.took(rule, who, 2).await, "{quota:?}");
            assert!(!limiter.took(rule, who, 1).await, "{quota:?}");
        }
        let key = |parts: [&str; 2]| {
            let check = limiter.0.check(rule, &Key::of(parts));
            [check.expect("the rule is there").with_cost(2)]
        };
        assert!(limiter.acquire(&key(["a_b", "c"])).await.is_allowed());
        assert!(
            limiter.acquire(&key(["a", "b_c"])).await.is_allowed(),
            "{quota:?}"
        );
    }
}

pub async fn a_reset_makes_one_key_fresh(subject: &Subject) {
    for (limiter, rule, quota) in subject.each(2) {
        for who in ["a", "b"] {
            assert!(limiter.took(rule, who, 2).await);
            // What is known of the key without its state has to be forgotten as well.
            assert!(!limiter.took(rule, who, 1).await);
        }
        let reset = async |who: &str| {
            let reset = limiter.0.reset(rule, &Key::of(who));
            let reset = reset.expect("the rule is there").await;
            reset.expect("the store is there")
        };
        assert!(reset("a").await, "{quota:?}");
        assert!(!reset("c").await, "nothing to reset: {quota:?}");
        assert!(limiter.took(rule, "a", 2).await, "{quota:?}");
        assert!(!limiter.took(rule, "b", 1).await, "{quota:?}");
    }
}

pub async fn what_is_left_is_granted_in_part(subject: &Subject) {
    for (limiter, rule, quota) in subject.each(10) {
        let check = [limiter.check(rule, "a", 1)];
        for (wanted, granted) in [(4, 4), (100, 6), (1, 0), (0, 0)] {
            let grant = limiter.0.acquire_up_to(&check, wanted).await;
            assert_eq!(grant.units, granted, "{quota:?}");
            assert_eq!(
                grant.decision.is_allowed(),
                granted > 0 || wanted == 0,
                "{quota:?}"
            );
        }
    }
}
