//! Rules that are replaced while a limiter is in use.

use std::{
    num::NonZeroU32,
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use tollgate_conformance::SwitchedStore;
use tollgate_core::{
    HOUR, Key, KeyBuf, Limiter, LiveLimiter, MINUTE, ManualClock, MemoryStore, Outcome, PartKind,
    Quota, Reason, Rule, StoreErrorKind,
};

use crate::{admitted_in_fallback, at_once, check, every_algorithm, left};

const START: u64 = 1_700_000_000_123_456;

/// A store whose time stands still.
fn still() -> MemoryStore {
    let clock = ManualClock::new(START);
    MemoryStore::builder().clock(&clock).build()
}

fn take(limiter: &LiveLimiter, rule: &str, who: &str, cost: u64) -> bool {
    let limiter = limiter.limiter();
    at_once(limiter.acquire(&[check(&limiter, rule, who, cost)])).is_allowed()
}

fn remaining(limiter: &LiveLimiter, rule: &str, who: &str) -> u64 {
    left(&limiter.limiter(), rule, who)
}

#[test]
fn an_outage_goes_on_under_rules_that_are_replaced() {
    let clock = ManualClock::new(START);
    let store = SwitchedStore::at_once(MemoryStore::builder().clock(&clock).build());
    store.know(2);
    let rules = |more: Option<&str>, limit| {
        let other = more.map(|name| Rule::new(name, Quota::fixed_window(4, MINUTE)));
        let rule = Rule::new("rule", Quota::fixed_window(limit, MINUTE));
        other.into_iter().chain([rule])
    };
    let two = NonZeroU32::new(2).expect("not zero");
    let limiter = LiveLimiter::with_instances(store.clone(), rules(None, 20), two);
    let limiter = limiter.expect("valid");
    // The store last said that 6 of 20 are used.
    assert!(take(&limiter, "rule", "ann", 6));
    limiter.replace(rules(Some("first"), 20)).expect("valid");
    store.switch(false);
    // Of a share of 10, 3 are used, and 4 more.
    assert!(take(&limiter, "rule", "ann", 4));
    limiter.replace(rules(None, 20)).expect("valid");
    assert!(take(&limiter, "rule", "ann", 2));
    limiter.replace(rules(Some("first"), 24)).expect("valid");
    // Of a share of 12 now, 9 are used.
    assert!(!take(&limiter, "rule", "ann", 4));
    assert!(take(&limiter, "rule", "ann", 3));
    assert_eq!(admitted_in_fallback(&limiter.limiter(), "rule"), 9);
    // The rule in front of it has a share of its own.
    assert!(take(&limiter, "first", "ann", 2));
    assert!(!take(&limiter, "first", "ann", 1));
    store.switch(true);
    assert_eq!(remaining(&limiter, "rule", "ann"), 24 - 6);
}

/// What is in force while others ask.
fn variants(limits: [u64; 2], quota: fn(u64) -> Quota) -> Vec<[Rule; 1]> {
    let rule = |limit| Rule::new("rule", quota(limit));
    vec![
        [rule(limits[0])],
        [rule(limits[1]).shadow()],
        [rule(limits[1])],
        [rule(limits[0]).off()],
        [rule(limits[0])],
        [Rule::new("rule", Quota::unlimited())],
        [rule(limits[1])],
    ]
}

/// Asks from several threads while rules are swapped.
fn under_load(
    limiter: &LiveLimiter,
    variants: &[[Rule; 1]],
    swaps: usize,
    request: impl Fn(&Key) + Sync,
) {
    let mut key = KeyBuf::new();
    key.push(PartKind::CONSTANT, "all");
    let key = Key::from(key);
    let (done, begin) = (AtomicBool::new(false), Barrier::new(4));
    thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                begin.wait();
                while !done.load(SeqCst) {
                    request(&key);
                }
            });
        }
        begin.wait();
        for swap in 0..swaps {
            let rules = variants[swap % variants.len()].clone();
            limiter.replace(rules).expect("valid");
            // Others ask in between.
            thread::yield_now();
        }
        done.store(true, SeqCst);
    });
}

#[test]
fn no_request_fails_and_no_unit_is_lost_or_won_while_rules_are_swapped() {
    const LARGER: u64 = 50_000;
    for quota in [
        |limit| every_algorithm(limit)[0],
        |limit| every_algorithm(limit)[1],
        |limit| every_algorithm(limit)[2],
        |limit| every_algorithm(limit)[4],
    ] {
        let limiter = LiveLimiter::new(still(), [Rule::new("rule", quota(LARGER))]);
        let limiter = limiter.expect("valid");
        let counted = AtomicU64::new(0);
        let variants = variants([LARGER, 20_000], quota);
        under_load(&limiter, &variants, 200, |key| {
            let decision = limiter.try_acquire("rule", key);
            let decision = decision.expect("the rule is always there");
            assert!(matches!(decision.reason(), None | Some(Reason::Quota)));
            let verdict = &decision.verdicts().first();
            let has_counted = verdict.is_some_and(|verdict| {
                assert_ne!(verdict.outcome(), Outcome::Failed);
                verdict.outcome() == Outcome::Allow && verdict.has_numbers()
            });
            counted.fetch_add(u64::from(has_counted), SeqCst);
        });
        let counted = counted.into_inner();
        assert!(counted <= LARGER, "{counted}");
        limiter
            .replace([Rule::new("rule", quota(LARGER))])
            .expect("valid");
        let mut key = KeyBuf::new();
        key.push(PartKind::CONSTANT, "all");
        let limiter = limiter.limiter();
        let check = limiter.check("rule", &key.into()).expect("a rule");
        let looked = limiter.peek(&[check.with_cost(0)]).ready();
        let left = looked.expect("memory answers at once").verdicts()[0].remaining();
        assert_eq!(left, LARGER - counted, "{}", quota(LARGER));
    }
}

// Checks that another limiter made: no call takes them for its own.

#[test]
fn a_check_of_another_limiter_takes_nothing_and_resets_nothing() {
    let rule = || Rule::new("rule", Quota::gcra(5, MINUTE).burst(3));
    for rule in [rule(), rule().wait(MINUTE)] {
        let store = MemoryStore::new();
        let limiter = Limiter::new(store, [rule.clone()]).expect("valid");
        let other = Limiter::new(MemoryStore::new(), [rule]).expect("valid");
        let ann = Key::of(["ann"]);
        let own = limiter.check("rule", &ann).expect("a rule");
        let foreign = other.check("rule", &ann).expect("a rule");
        assert!(at_once(limiter.acquire(&[own])).is_allowed());
        for checks in [&[foreign][..], &[own, foreign], &[foreign, own]] {
            let denied = at_once(limiter.attempt(checks).within(MINUTE).decide());
            assert!(!denied.is_allowed());
            assert!(!at_once(limiter.acquire(checks)).is_allowed());
            assert!(!at_once(limiter.peek(checks)).is_allowed());
            let error = at_once(limiter.reset_all(checks)).expect_err("it is not ours");
            assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
            assert_eq!(left(&limiter, "rule", "ann"), 2);
        }
        assert_eq!(at_once(limiter.reset_all(&[own])).ok(), Some(true));
        assert_eq!(left(&limiter, "rule", "ann"), 3);
    }
}

#[test]
fn a_limit_that_changes_each_second_for_years_keeps_its_units() {
    let clock = ManualClock::new(START);
    let rule = |n: u64| [Rule::new("rule", Quota::gcra(1_000 + n, HOUR))];
    let store = MemoryStore::builder().clock(&clock).build();
    let limiter = LiveLimiter::new(store, rule(0)).expect("valid");
    let ann = Key::of(["ann"]);
    for n in 0..70_000_u64 {
        let decision = limiter.try_acquire("rule", &ann).expect("at once");
        // A thousandth of an hour gives a unit back, or a little more than one.
        clock.advance(HOUR / 1_000);
        let left = decision.verdicts()[0].remaining();
        assert!(left + 2 >= 1_000 + n, "{left} at {n}");
        limiter.replace(rule(n + 1)).expect("there is room");
    }
}
