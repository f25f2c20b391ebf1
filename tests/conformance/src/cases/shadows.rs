//! Shadows and thresholds: reported, and never in the way.

use tollgate_core::{MAX_PERIOD, Outcome, Quota, Retry, Rule};

use crate::{quotas::every_algorithm, subject::Subject};

pub async fn a_shadow_denies_nothing(subject: &Subject) {
    for quota in every_algorithm(2) {
        let name = quota.algorithm().name();
        let limiter = subject.limiter([Rule::new(name, quota).shadow()]);
        for outcome in [Outcome::Allow, Outcome::Allow, Outcome::Deny, Outcome::Deny] {
            let decision = limiter.take(name, "a", 1).await;
            assert!(decision.is_allowed(), "{quota:?}");
            assert_eq!(decision.reason(), None, "{quota:?}");
            assert_eq!(decision.retry(), Retry::Now, "{quota:?}");
            assert_eq!(decision.verdicts()[0].outcome(), outcome, "{quota:?}");
        }
    }
}

pub async fn a_shadow_fills_as_if_it_were_alone(subject: &Subject) {
    for (one, other) in every_algorithm(1).into_iter().zip(every_algorithm(5)) {
        let name = one.algorithm().name();
        let shadow = format!("{name}-next");
        let limiter = subject.limiter([Rule::new(name, one), Rule::new(&*shadow, other).shadow()]);
        let checks = [limiter.check(name, "a", 1), limiter.check(&shadow, "a", 1)];
        for n in 0..7 {
            let decision = limiter.acquire(&checks).await;
            assert_eq!(decision.is_allowed(), n < 1, "{one:?}");
            let expected = if n < 5 { Outcome::Allow } else { Outcome::Deny };
            assert_eq!(
                decision.verdicts()[1].outcome(),
                expected,
                "{one:?}, request {n}"
            );
        }
    }
}

pub async fn a_shadow_counts_a_partial_grant_once(subject: &Subject) {
    for quota in every_algorithm(4) {
        let name = quota.algorithm().name();
        let shadow = format!("{name}-next");
        let wide = Quota::sliding_log(1_000, MAX_PERIOD);
        let limiter = subject.limiter([Rule::new(name, quota), Rule::new(&*shadow, wide).shadow()]);
        let checks = [limiter.check(name, "a", 1), limiter.check(&shadow, "a", 1)];
        assert_eq!(
            limiter.0.acquire_up_to(&checks, 100).await.units,
            4,
            "{quota:?}"
        );
        assert_eq!(limiter.left(&shadow, "a").await, 996, "{quota:?}");
    }
}

pub async fn a_threshold_reads_the_state_of_its_rule(subject: &Subject) {
    for (quota, threshold) in every_algorithm(5).into_iter().zip(thresholds(3)) {
        let name = quota.algorithm().name();
        let limiter = subject.limiter([Rule::new(name, quota).threshold("warn", threshold)]);
        for n in 0..7 {
            let decision = limiter.take(name, "a", 1).await;
            assert_eq!(decision.is_allowed(), n < 5, "{quota:?}");
            let verdict = decision.verdicts()[1];
            assert_eq!(limiter.0.rules().rules()[verdict.rule()].name(), "warn");
            let expected = if n < 3 { Outcome::Allow } else { Outcome::Deny };
            assert_eq!(verdict.outcome(), expected, "{quota:?}, request {n}");
            assert_eq!(verdict.remaining(), 2_u64.saturating_sub(n), "{quota:?}");
        }
    }
}

pub async fn a_threshold_is_never_written(subject: &Subject) {
    for (quota, threshold) in every_algorithm(5).into_iter().zip(thresholds(3)) {
        let name = quota.algorithm().name();
        let limiter = subject.limiter([Rule::new(name, quota).threshold("warn", threshold)]);
        assert!(limiter.took(name, "a", 1).await);
        assert_eq!(limiter.left(name, "a").await, 4, "{quota:?}");
        assert!(limiter.took(name, "a", 4).await, "{quota:?}");
        assert_eq!(limiter.left(name, "a").await, 0, "{quota:?}");
    }
}

/// Limits that can be read on the states of [`every_algorithm`] with a limit of 5: a bucket keeps its rate.
fn thresholds(limit: u64) -> [Quota; 7] {
    let [fixed, sliding, buckets, log, ..] = every_algorithm(limit);
    [
        fixed,
        sliding,
        buckets,
        log,
        Quota::gcra(5, MAX_PERIOD).burst(limit),
        Quota::token_bucket(limit).refill(5, MAX_PERIOD),
        Quota::leaky_bucket(limit).leak(5, MAX_PERIOD),
    ]
}
