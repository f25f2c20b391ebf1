//! Partial grants.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tollgate_conformance::{Fault::Refused, RemoteStore};
use tollgate_core::{Clock, Limiter, MemoryStore, OnStoreError, Quota, Rule, observe::Timer};

use crate::{LONG, check, layered};

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
async fn a_grant_is_what_the_tightest_enforced_rule_has_left_and_never_more_than_was_asked_for() {
    for (enforced, shadow, most, units) in [
        (&[10, 5][..], None, 10, 5),
        (&[5, 10], None, 10, 5),
        (&[10, 5], Some(1), 10, 5),
        (&[5, 10], Some(100), 10, 5),
        (&[10], Some(3), 10, 10),
        (&[10], Some(3), 20, 10),
        (&[100], Some(100), 5, 5),
        (&[100], None, 5, 5),
    ] {
        let rule = |(n, limit): (usize, &u64)| {
            Rule::new(format!("rule-{n}"), Quota::fixed_window(*limit, LONG))
        };
        let mut rules: Vec<Rule> = enforced.iter().enumerate().map(rule).collect();
        rules.extend(shadow.map(|limit| rule((9, &limit)).shadow()));
        let limiter = Limiter::new(MemoryStore::new(), rules).expect("valid");
        let names: Vec<&str> = limiter.rules().rules().iter().map(Rule::name).collect();
        let checks: Vec<_> = names
            .iter()
            .map(|name| check(&limiter, name, "ann", 1))
            .collect();
        let case = format!("{enforced:?} {shadow:?} {most}");
        let grant = limiter.acquire_up_to(&checks, most).await;
        assert_eq!(grant.units, units, "{case}");
        assert!(grant.decision.is_allowed(), "{case}");
        for (name, limit) in names.iter().zip(enforced) {
            assert_eq!(crate::left(&limiter, name, "ann"), limit - units, "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_way_to_acquire_counts_one_request_among_the_top_keys() {
    let rule = || Rule::new("rule", Quota::fixed_window(10, LONG)).top_keys();
    let limiter = Limiter::new(MemoryStore::new(), [rule()]).expect("valid");
    let seen = |limiter: &Limiter| {
        let top = limiter.top_keys("rule", 9).expect("a rule");
        (top[0].at_least, top[0].denials, top[0].cost)
    };
    let one = [check(&limiter, "rule", "ann", 1)];
    // Granted whole, in part, and not at all, which is a denial of one unit.
    for (max, units, expected) in [(4, 4, (1, 0, 4)), (20, 6, (2, 0, 10)), (3, 0, (3, 1, 11))] {
        assert_eq!(limiter.acquire_up_to(&one, max).await.units, units);
        assert_eq!(seen(&limiter), expected);
    }
    let decision = limiter.acquire_within(&one, Duration::ZERO).await;
    let decision = decision.expect("there is room");
    assert_eq!(seen(&limiter), (4, 2, 12));
    layered(&limiter).report(&one, &decision, Timer::start(), "");
    assert_eq!(seen(&limiter), (5, 3, 13));

    let store = RemoteStore::new(MemoryStore::new()).faults(|call| (call > 2).then_some(Refused));
    let rule = rule().on_store_error(OnStoreError::Deny);
    let limiter = Limiter::new(store, [rule]).expect("valid");
    let two = [check(&limiter, "rule", "ann", 2)];
    assert!(limiter.acquire(&two).await.is_allowed());
    assert_eq!(seen(&limiter), (1, 0, 2));
    assert!(limiter.acquire_within(&two, LONG).await.is_ok());
    assert_eq!(seen(&limiter), (2, 0, 4));
    assert_eq!(limiter.acquire_up_to(&two, 5).await.units, 0);
    assert_eq!(seen(&limiter), (3, 1, 9));
}
