//! Several checks in one request.

use tollgate_core::{Outcome, Reason, Retry, Rule};

use crate::{quotas::every_algorithm, subject::Subject};

pub async fn a_request_is_taken_whole_or_not_at_all(subject: &Subject) {
    for (n, large) in every_algorithm(10).into_iter().enumerate() {
        for (m, small) in every_algorithm(2).into_iter().enumerate() {
            let (one, other) = (format!("large-{n}-{m}"), format!("small-{n}-{m}"));
            let limiter = subject.limiter([Rule::new(&*one, large), Rule::new(&*other, small)]);
            let mut checks = [limiter.check(&one, "a", 1), limiter.check(&other, "a", 1)];
            for _ in 0..2 {
                assert!(limiter.acquire(&checks).await.is_allowed());
            }
            for _ in 0..3 {
                let denied = limiter.acquire(&checks).await;
                assert_eq!(denied.outcome(), Outcome::Deny, "{large:?} and {small:?}");
                checks.reverse();
            }
            assert_eq!(limiter.left(&one, "a").await, 8, "{large:?} and {small:?}");
            assert_eq!(
                limiter.left(&other, "a").await,
                0,
                "{large:?} and {small:?}"
            );
        }
    }
}

pub async fn verdicts_are_in_the_order_of_the_checks(subject: &Subject) {
    let quotas = every_algorithm(9);
    let limiter = subject.limiter(quotas.map(|quota| Rule::new(quota.algorithm().name(), quota)));
    for turn in 0..quotas.len() {
        let mut checks: Vec<_> = (1..)
            .zip(quotas)
            .map(|(cost, quota)| limiter.check(quota.algorithm().name(), &format!("{turn}"), cost))
            .collect();
        checks.rotate_left(turn);
        checks.swap(0, 3);
        let decision = limiter.acquire(&checks).await;
        assert_eq!(decision.verdicts().len(), checks.len());
        for (check, verdict) in checks.iter().zip(decision.verdicts()) {
            assert_eq!(verdict.rule(), usize::from(check.rule()));
            assert_eq!(verdict.remaining(), 9 - check.cost());
        }
    }
}

pub async fn checks_on_one_state_are_folded(subject: &Subject) {
    for (limiter, rule, quota) in subject.each(10) {
        let twice = |cost| {
            [
                limiter.check(rule, "a", cost),
                limiter.check(rule, "a", cost),
            ]
        };
        let denied = limiter.acquire(&twice(6)).await;
        assert_eq!(denied.outcome(), Outcome::Deny, "{quota:?}");
        assert_eq!(denied.reason(), Some(Reason::Never), "{quota:?}");
        assert_eq!(limiter.left(rule, "a").await, 10, "{quota:?}");
        let allowed = limiter.acquire(&twice(4)).await;
        assert!(allowed.is_allowed(), "{quota:?}");
        assert_eq!(allowed.verdicts().len(), 2);
        assert!(
            allowed
                .verdicts()
                .iter()
                .all(|verdict| verdict.remaining() == 2),
            "{quota:?}"
        );
        assert!(!limiter.acquire(&twice(2)).await.is_allowed(), "{quota:?}");
        let [one, other] = [limiter.check(rule, "a", 1), limiter.check(rule, "b", 10)];
        assert!(
            limiter.acquire(&[one, other, one]).await.is_allowed(),
            "{quota:?}"
        );
        assert_eq!(limiter.left(rule, "a").await, 0, "{quota:?}");
        assert_eq!(limiter.left(rule, "b").await, 0, "{quota:?}");
    }
}

pub async fn two_plans_of_one_rule_and_key_are_denied(subject: &Subject) {
    for (small, large) in every_algorithm(10).into_iter().zip(every_algorithm(100)) {
        let name = small.algorithm().name();
        let other_name = format!("{name}-other");
        let rule = Rule::new(name, small)
            .plan("gold", large)
            .plan("more", large);
        let limiter = subject.limiter([rule, Rule::new(&*other_name, small)]);
        let (own, gold, more) = (
            |cost| limiter.check(name, "a", cost),
            |cost| limiter.planned(name, "gold", "a", cost),
            |cost| limiter.planned(name, "more", "a", cost),
        );
        let other = limiter.check(&other_name, "a", 1);
        // Together they are above the limit of the one, or fit both: no client requested either.
        for cost in [1, 50] {
            for checks in [
                vec![own(1), gold(cost)],
                vec![gold(cost), own(1)],
                vec![gold(cost), more(1)],
                vec![own(1), other, own(1), gold(cost)],
                vec![own(1), other, gold(cost)],
            ] {
                let denied = limiter.0.acquire(&checks).await;
                assert_eq!(denied.outcome(), Outcome::Deny, "{small:?} {checks:?}");
                assert_eq!(denied.reason(), Some(Reason::StoreFailed), "{small:?}");
                assert_eq!(denied.verdicts().len(), checks.len());
                let peeked = limiter.0.peek(&checks).await;
                assert_eq!(peeked.outcome(), Outcome::Deny, "{small:?} {checks:?}");
            }
        }
        assert_eq!(limiter.left(name, "a").await, 10, "{small:?}");
        assert_eq!(limiter.left(&other_name, "a").await, 10, "{small:?}");
        // Of two clients each has one.
        let other = limiter.planned(name, "gold", "b", 50);
        assert!(limiter.acquire(&[own(1), other, own(1)]).await.is_allowed());
    }
}

pub async fn a_check_that_never_fits_makes_the_request_never(subject: &Subject) {
    for quota in every_algorithm(3) {
        let name = quota.algorithm().name();
        let other = format!("{name}-2");
        let limiter = subject.limiter([Rule::new(name, quota), Rule::new(&*other, quota)]);
        assert!(limiter.took(name, "a", 3).await);
        let checks = [limiter.check(name, "a", 1), limiter.check(&other, "a", 4)];
        let decision = limiter.acquire(&checks).await;
        assert_eq!(decision.retry(), Retry::Never, "{quota:?}");
        assert_eq!(decision.reason(), Some(Reason::Never), "{quota:?}");
        assert!(
            matches!(decision.verdicts()[0].retry(), Retry::After(_)),
            "{quota:?}"
        );
    }
}

pub async fn a_request_without_checks_passes(subject: &Subject) {
    let [quota, ..] = every_algorithm(1);
    let limiter = subject.limiter([Rule::new("rule", quota)]);
    let decision = limiter.acquire(&[]).await;
    assert!(decision.is_allowed() && decision.verdicts().is_empty());
}

pub async fn a_rule_that_is_off_decides_nothing(subject: &Subject) {
    for quota in every_algorithm(1) {
        let name = quota.algorithm().name();
        let on = subject.limiter([Rule::new(name, quota)]);
        let off = subject.limiter([Rule::new(name, quota).off()]);
        for _ in 0..3 {
            let decision = off.take(name, "a", 1).await;
            assert!(decision.is_allowed(), "{quota:?}");
            assert_eq!(
                decision.verdicts()[0].outcome(),
                Outcome::NotDecided,
                "{quota:?}"
            );
        }
        assert_eq!(on.left(name, "a").await, 1, "{quota:?}");
    }
}
