//! Partial grants.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tollgate_conformance::RemoteStore;
use tollgate_core::{Clock, Limiter, ManualClock, MemoryStore, Quota, Retry, Rule};

use crate::{LONG, check, every_algorithm};

#[tokio::test]
async fn a_grant_of_two_checks_on_one_state_is_found_in_a_few_steps() {
    let reads = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&reads);
    let clock = Clock::custom(move || {
        count.fetch_add(1, Ordering::Relaxed);
        1_000_000
    });
    let store = MemoryStore::builder().clock(clock).build();
    let limiter = Limiter::new(
        store,
        [Rule::new("rule", Quota::fixed_window(200_000, LONG))],
    )
    .expect("valid");
    let one = check(&limiter, "rule", "ann", 1);
    reads.store(0, Ordering::Relaxed);
    let grant = limiter.acquire_up_to(&[one, one], 200_000).await;
    // Both take as much, and there is room for a hundred thousand each.
    assert_eq!(grant.units, 100_000);
    assert!(grant.decision.is_allowed());
    let reads = reads.load(Ordering::Relaxed);
    assert!(reads < 10, "the clock was read {reads} times");
}

#[tokio::test]
async fn nothing_left_reports_the_wait_for_one_unit() {
    for quota in every_algorithm(10) {
        let clock = ManualClock::default();
        let store = MemoryStore::builder().clock(&clock).build();
        let limiter = Limiter::new(store, [Rule::new("rule", quota)]).expect("valid");
        let all = check(&limiter, "rule", "ann", 10);
        assert!(limiter.acquire(&[all]).await.is_allowed());
        let one = limiter.peek(&[all.with_cost(1)]).await.retry();
        assert!(matches!(one, Retry::After(_)), "{quota:?}");
        for max in [1, 10, 11, 1_000] {
            let grant = limiter.acquire_up_to(&[all], max).await;
            assert_eq!(grant.units, 0, "{quota:?}");
            assert_eq!(grant.decision.retry(), one, "{quota:?}, up to {max}");
        }
        // And it is true.
        let Retry::After(wait) = one else { continue };
        clock.advance(wait);
        assert!(
            limiter.acquire_up_to(&[all], 10).await.units > 0,
            "{quota:?}"
        );
    }
}

#[tokio::test]
async fn what_is_left_by_a_rule_that_is_empty_is_the_wait_for_one_unit_of_all() {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().clock(&clock).build();
    let rules = [
        Rule::new("wide", Quota::gcra(10, LONG)),
        Rule::new("empty", Quota::gcra(5, tollgate_core::MINUTE)),
        Rule::new("shadow", Quota::sliding_log(1_000, LONG)).shadow(),
    ];
    let limiter = Limiter::new(store, rules).expect("valid");
    let checks = ["wide", "empty", "shadow"].map(|rule| check(&limiter, rule, "ann", 1));
    assert!(
        limiter
            .acquire(&[checks[1].with_cost(5)])
            .await
            .is_allowed()
    );
    let grant = limiter.acquire_up_to(&checks, 10).await;
    assert_eq!(grant.units, 0);
    let wait = std::time::Duration::from_secs(12);
    assert_eq!(grant.decision.retry(), Retry::After(wait));
}

#[tokio::test(start_paused = true)]
async fn a_grant_calls_a_failing_store_once() {
    let store =
        RemoteStore::new(MemoryStore::new()).faults(|_| Some(tollgate_conformance::Fault::Refused));
    let rule = Rule::new("rule", Quota::gcra(10, LONG));
    let rule = rule.on_store_error(tollgate_core::OnStoreError::Deny);
    let limiter = Limiter::new(store.clone(), [rule]).expect("valid");
    let grant = limiter
        .acquire_up_to(&[check(&limiter, "rule", "ann", 1)], 9)
        .await;
    assert_eq!((grant.units, store.calls()), (0, 1));
}

#[tokio::test]
async fn a_shadow_counts_a_grant_once() {
    for quota in every_algorithm(100) {
        let clock = ManualClock::default();
        let store = MemoryStore::builder().clock(&clock).build();
        let rules = [
            Rule::new("rule", Quota::fixed_window(3, LONG)),
            Rule::new("shadow", quota).shadow(),
        ];
        let limiter = Limiter::new(store, rules).expect("valid");
        let checks = ["rule", "shadow"].map(|rule| check(&limiter, rule, "ann", 1));
        let grant = limiter.acquire_up_to(&checks, 10).await;
        assert_eq!(grant.units, 3, "{quota:?}");
        let looked = limiter.peek(&[checks[1].with_cost(0)]).await;
        assert_eq!(looked.verdicts()[0].remaining(), 97, "{quota:?}");
    }
}
