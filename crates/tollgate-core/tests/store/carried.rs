//! States that one quota wrote and another one reads: what a look, a denial and a wait say of them.

use std::time::Duration;

use tollgate_core::{
    Check, Key, Limiter, MINUTE, ManualClock, MemoryStore, Outcome, Quota, Rule, RuleErrorKind,
    SECOND, Source, Verdict,
};

use crate::{at_once, every_algorithm};

const START: u64 = 1_700_000_040_000_000;

fn store() -> (MemoryStore, ManualClock) {
    let clock = ManualClock::new(START);
    (MemoryStore::builder().clock(&clock).build(), clock)
}

/// A limiter of one rule, its check under the rule's own quota, and the one under its plan.
fn of_two_quotas(rule: Rule, gold: Quota) -> (Limiter, Check, Check) {
    let limiter = Limiter::new(store().0, [rule.plan("gold", gold)]).expect("valid quotas");
    let ann = Key::of("ann");
    let own = limiter.check("rule", &ann).expect("a rule");
    let gold = limiter.check_with_plan("rule", "gold", &ann);
    let gold = gold.expect("a plan");
    (limiter, own, gold)
}

fn acquire(limiter: &Limiter, check: Check) -> Verdict {
    at_once(limiter.acquire(&[check])).verdicts()[0]
}

fn peek(limiter: &Limiter, check: Check) -> Verdict {
    at_once(limiter.peek(&[check])).verdicts()[0]
}

#[test]
fn a_look_at_a_used_up_quota_says_when_a_unit_is_there_whichever_quota_used_it_up() {
    for (own, gold) in every_algorithm(5).into_iter().zip(every_algorithm(9)) {
        for used in 4..=9 {
            let (limiter, free, gold) = of_two_quotas(Rule::new("rule", own), gold);
            acquire(&limiter, gold.with_cost(used));
            for check in [free, gold] {
                let look = peek(&limiter, check.with_cost(0));
                let one = peek(&limiter, check.with_cost(1));
                let story = format!("{own}, {used} used, plan {}", check.plan());
                let left = look.remaining().saturating_sub(1);
                assert_eq!(one.remaining(), left, "{story}");
                if look.remaining() == 0 {
                    assert_eq!(look.retry(), one.retry(), "{story}");
                    assert_ne!(look.retry().delay(), Some(Duration::ZERO), "{story}");
                } else {
                    assert_eq!(look.retry().delay(), Some(Duration::ZERO), "{story}");
                }
            }
        }
    }
}

#[test]
fn a_denial_after_another_one_needs_no_look_at_the_state() {
    for quota in every_algorithm(5) {
        let limiter = Limiter::new(store().0, [Rule::new("rule", quota)]).expect("valid");
        let check = limiter.check("rule", &Key::of("ann")).expect("a rule");
        let by = |cost| {
            let verdict = acquire(&limiter, check.with_cost(cost));
            (verdict.outcome(), verdict.remaining(), verdict.source())
        };
        assert_eq!(by(5), (Outcome::Allow, 0, Source::Store), "{quota}");
        assert_eq!(by(1), (Outcome::Deny, 0, Source::Store), "{quota}");
        for _ in 0..2 {
            assert_eq!(by(1), (Outcome::Deny, 0, Source::DenyCache), "{quota}");
        }
    }
}

// Quotas that checks bring along: which of them a rule takes, and as what.

#[test]
fn a_rule_refuses_a_quota_that_cannot_be_counted_with_its_own() {
    let gcra = Quota::gcra(10, MINUTE);
    let rule = |quota| Rule::new("rule", quota);
    for (rule, quota, words) in [
        (rule(gcra), Quota::gcra(20, MINUTE), "add variable_quota()"),
        (
            rule(gcra).variable_quota(),
            Quota::gcra(u64::MAX, MINUTE),
            "the quota of a check: ",
        ),
        (
            rule(Quota::unlimited()).variable_quota(),
            gcra,
            "the rule's own quota is unlimited",
        ),
        (
            rule(gcra).variable_quota(),
            Quota::fixed_window(20, MINUTE),
            "plans share one state",
        ),
        (
            rule(gcra).wait(SECOND).variable_quota(),
            Quota::gcra(2_000_000, SECOND),
            "nothing to wait for",
        ),
    ] {
        let error = rule.quota_for(quota).expect_err(words);
        assert!(error.to_string().contains(words), "{error}");
        let is_quota = error.kind() == RuleErrorKind::Quota;
        assert_eq!(is_quota, words != "add variable_quota()", "{error}");
    }
}

#[test]
fn a_quota_that_is_one_of_the_rule_s_counts_as_that_and_any_other_has_a_number_of_its_own() {
    let quota = |limit| Quota::gcra(limit, MINUTE);
    let rule = Rule::new("rule", quota(10))
        .plan("gold", quota(20))
        .variable_quota();
    let limiter = Limiter::new(MemoryStore::new(), [rule]).expect("a valid rule");
    let check = limiter.check("rule", &Key::of("ann")).expect("a rule");
    let number = |quota| {
        let brought = limiter.quota_for("rule", quota).expect("it goes together");
        check.with_quota(brought).plan()
    };
    for _ in 0..2 {
        assert_eq!(
            [10, 20, 30, 40].map(|limit| number(quota(limit))),
            [0, 1, 2, 3]
        );
        assert_eq!(number(Quota::unlimited()), 4);
        // As in text.
        let empty = Quota::token_bucket(0).refill(5, SECOND);
        assert_eq!([quota(0), empty, Quota::none()].map(number), [5; 3]);
    }
}

// Plans, and what a denial has taught where plans and clocks change in between.

#[test]
fn the_deny_cache_of_a_plan_is_dropped_when_another_repairs_the_state() {
    let clock = ManualClock::new(110_000_000);
    let store = MemoryStore::builder().clock(&clock).build();
    let rule = Rule::new("rule", Quota::fixed_window(2, SECOND))
        .plan("gold", Quota::fixed_window(5, SECOND));
    let limiter = Limiter::new(store, [rule]).expect("valid");
    let key = Key::of("ann");
    let gold = limiter
        .check_with_plan("rule", "gold", &key)
        .expect("a plan");
    let free = limiter.check("rule", &key).expect("a rule");
    let acquire = |check| at_once(limiter.acquire(&[check]));

    for _ in 0..5 {
        assert!(acquire(gold).is_allowed());
    }
    // It is full, and the denial teaches.
    assert!(!acquire(gold).is_allowed());
    // The clock goes back, and a denial under the other plan moves the state near to now.
    clock.set(100_000_000);
    assert!(!acquire(free).is_allowed());
    // Where the clock was before, the state is fresh: asking and taking agree.
    clock.set(110_000_000);
    let peeked = at_once(limiter.peek(&[gold]));
    assert_eq!(peeked.outcome(), Outcome::Allow);
    assert_eq!(acquire(gold).outcome(), Outcome::Allow);
}

#[test]
fn what_costs_nothing_is_told_when_the_units_come_back_under_the_plan_that_took_them() {
    let clock = ManualClock::new(110_000_000);
    let store = MemoryStore::builder().clock(&clock).build();
    let rule = Rule::new("rule", Quota::gcra(5, 60 * SECOND)).plan("gold", Quota::gcra(10, SECOND));
    let limiter = Limiter::new(store, [rule]).expect("valid");
    let key = Key::of("ann");
    let gold = limiter.check_with_plan("rule", "gold", &key);
    let took = at_once(limiter.acquire(&[gold.expect("a plan").with_cost(2)]));
    assert!(took.is_allowed());
    let looks = [limiter.check("rule", &key).expect("a rule").with_cost(0)];
    for (at, left, reset_after) in [(0, 3, 200), (100, 4, 100), (200, 5, 0)] {
        clock.set(110_000_000 + at * 1_000);
        for decision in [limiter.peek(&looks), limiter.acquire(&looks)] {
            let verdict = at_once(decision).verdicts()[0];
            let told = (verdict.remaining(), verdict.reset_after().as_millis());
            assert_eq!(told, (left, reset_after), "{at}");
        }
    }
}
