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
    Check, HOUR, Key, KeyBuf, Limiter, LiveLimiter, MINUTE, ManualClock, MemoryStore, Outcome,
    PartKind, Quota, Reason, Rule, StoreErrorKind,
};

use crate::{at_once, every_algorithm, layered, left};

const START: u64 = 1_700_000_000_123_456;

/// A store whose time stands still.
fn still() -> MemoryStore {
    let clock = ManualClock::new(START);
    MemoryStore::builder().clock(&clock).build()
}

fn take(limiter: &LiveLimiter, rule: &str, who: &str, cost: u64) -> bool {
    let check = limiter.check(rule, &Key::of([who])).expect("a rule");
    let decision = limiter.acquire(&[check.with_cost(cost)]);
    let decision = decision.expect("the rule is there").ready();
    decision.expect("memory answers at once").is_allowed()
}

fn remaining(limiter: &LiveLimiter, rule: &str, who: &str) -> u64 {
    left(&limiter.limiter(), rule, who)
}

#[test]
fn a_check_is_found_again_by_the_names_of_its_rule_and_plan() {
    let quota = |limit| Quota::fixed_window(limit, MINUTE);
    let (one, two) = (Rule::new("one", quota(10)), Rule::new("two", quota(20)));
    let planned = |rule: &Rule, first: &str, other: &str| {
        let plan = |name: &str| quota(if name == "gold" { 40 } else { 30 });
        rule.clone()
            .plan(first, plan(first))
            .plan(other, plan(other))
    };
    let first = [one.clone(), planned(&two, "silver", "gold")];
    let limiter = LiveLimiter::new(still(), first).expect("valid");
    let ann = Key::of(["ann"]);
    let check = limiter.check("one", &ann).expect("a rule");
    let golden = limiter.limiter().check_with_plan("two", "gold", &ann);
    let golden = golden.expect("a plan");
    let remaining = |check: &Check| -> Result<u64, String> {
        let step = limiter
            .acquire(&[*check])
            .map_err(|error| error.to_string())?;
        let decision = step.ready().expect("memory answers at once");
        assert!(decision.is_allowed());
        Ok(decision.verdicts()[0].remaining())
    };
    assert_eq!((remaining(&check), remaining(&golden)), (Ok(9), Ok(39)));

    // Both rules and both plans change their places.
    let swapped = [planned(&two, "gold", "silver"), one.clone()];
    limiter.replace(swapped.clone()).expect("valid");
    assert_eq!((remaining(&check), remaining(&golden)), (Ok(8), Ok(38)));

    limiter
        .replace([two.clone().plan("silver", quota(30)), one])
        .expect("valid");
    assert_eq!(remaining(&check), Ok(7));
    let gone = remaining(&golden).expect_err("the plan is gone");
    assert!(
        gone.contains("unknown plan \"gold\"; expected \"silver\""),
        "{gone}"
    );

    limiter.replace([two]).expect("valid");
    let gone = remaining(&check).expect_err("the rule is gone");
    assert!(
        gone.contains("unknown rule \"one\"; expected \"two\""),
        "{gone}"
    );

    limiter.replace(swapped.clone()).expect("valid");
    assert_eq!(remaining(&check), Ok(6));
    limiter.replace(swapped).expect("valid");
    let old = remaining(&check).expect_err("it was made five replacements ago");
    assert!(old.contains("more than 4 times"), "{old}");
    // Nor is a check of another limiter one of any rule here.
    let other = Limiter::new(still(), [Rule::new("three", quota(9))]).expect("valid");
    let foreign = other.check("three", &ann).expect("a rule");
    assert!(remaining(&foreign).is_err());
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
    assert_eq!(limiter.limiter().admitted_in_fallback("rule"), Ok(9));
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
        under_load(&limiter, &variants, 500, |key| {
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
        let check = limiter.check("rule", &key.into()).expect("a rule");
        let looked = limiter.limiter().peek(&[check.with_cost(0)]).ready();
        let left = looked.expect("memory answers at once").verdicts()[0].remaining();
        assert_eq!(left, LARGER - counted, "{}", quota(LARGER));
    }
}

#[test]
fn a_call_is_decided_by_one_set_of_rules() {
    // Two rules that always have one limit, which alternates.
    let rules =
        |limit| ["one", "two"].map(|name| Rule::new(name, Quota::fixed_window(limit, MINUTE)));
    let limiter = LiveLimiter::new(still(), rules(100)).expect("valid");
    let done = AtomicBool::new(false);
    thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                while !done.load(SeqCst) {
                    let checks = ["one", "two"].map(|rule| {
                        let check = limiter.check(rule, &Key::shared()).expect("a rule");
                        check.with_cost(0)
                    });
                    let Ok(step) = limiter.acquire(&checks) else {
                        // More than four replacements lie between.
                        continue;
                    };
                    let decision = step.ready().expect("memory answers at once");
                    let left: Vec<_> = decision.verdicts().iter().map(|v| v.remaining()).collect();
                    assert_eq!(left[0], left[1]);
                }
            });
        }
        for swap in 0..3_000 {
            limiter.replace(rules(100 + swap % 2)).expect("valid");
        }
        done.store(true, SeqCst);
    });
}

#[test]
fn a_check_that_brings_a_quota_along_is_found_again_with_it() {
    let quota = |limit| Quota::fixed_window(limit, MINUTE);
    let (one, two) = (Rule::new("one", quota(10)), Rule::new("two", quota(20)));
    let limiter = LiveLimiter::new(still(), [one.clone(), two.clone().variable_quota()]);
    let limiter = limiter.expect("valid");
    let brought = limiter
        .limiter()
        .quota_for("two", quota(30))
        .expect("valid");
    let check = limiter.check("two", &Key::of(["ann"])).expect("a rule");
    let check = check.with_quota(brought);
    let left = || {
        let decision = limiter.acquire(&[check]);
        let decision = decision.map(|decision| decision.ready().expect("at once"));
        decision.map(|decision| decision.verdicts()[0].remaining())
    };
    assert_eq!(left().ok(), Some(29));
    let swapped = [two.clone().variable_quota(), one.clone()];
    limiter.replace(swapped).expect("valid");
    assert_eq!(left().ok(), Some(28));
    // A rule that takes none says so, and no other limit is taken for it.
    limiter.replace([one.clone(), two]).expect("valid");
    let error = left().expect_err("its quota is fixed").to_string();
    assert!(
        error.contains("add variable_quota() to the rule"),
        "{error}"
    );
    limiter.replace([one]).expect("valid");
    let error = left().expect_err("its rule is gone").to_string();
    assert!(error.contains("\"two\""), "{error}");
}

#[test]
fn a_check_is_not_found_again_as_a_threshold_that_has_the_name_of_its_rule() {
    let quota = |limit| Quota::fixed_window(limit, MINUTE);
    let one = Rule::new("one", quota(10));
    let limiter = LiveLimiter::new(still(), [one.clone(), Rule::new("two", quota(20))]);
    let limiter = limiter.expect("valid");
    let check = limiter.check("two", &Key::of(["ann"])).expect("a rule");
    let warned = one.threshold("two", quota(5));
    limiter.replace([warned]).expect("valid");
    let error = limiter.acquire(&[check]).expect_err("its rule is gone");
    let error = error.to_string();
    assert!(
        error.contains("unknown rule \"two\"; expected \"one\""),
        "{error}"
    );
}

#[test]
fn checks_of_the_rules_in_force_and_of_those_before_are_decided_together() {
    let quota = |limit| Quota::fixed_window(limit, MINUTE);
    let rules = [Rule::new("one", quota(10)), Rule::new("two", quota(20))];
    let limiter = LiveLimiter::new(still(), rules.clone()).expect("valid");
    let check = |rule| limiter.check(rule, &Key::of(["ann"])).expect("a rule");
    let before = check("two");
    let [one, two] = rules;
    limiter.replace([two, one]).expect("valid");
    let now = check("one");
    for (checks, left) in [([now, before], [9, 19]), ([before, now], [18, 8])] {
        let decision = limiter.acquire(&checks).expect("both rules are there");
        let decision = decision.ready().expect("memory answers at once");
        assert!(decision.is_allowed());
        let verdicts = decision.verdicts().iter();
        let remaining: Vec<_> = verdicts.map(|verdict| verdict.remaining()).collect();
        assert_eq!(remaining, left);
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
            let denied = at_once(layered(&limiter).attempt(checks).within(MINUTE).decide());
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
