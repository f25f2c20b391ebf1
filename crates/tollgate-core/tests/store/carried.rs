//! States that one quota wrote and another one reads: what a look, a denial and a wait say of them.

use std::time::Duration;

use tollgate_core::{
    Check, Key, Limiter, LiveLimiter, MINUTE, ManualClock, MemoryStore, Outcome, Quota, Rule,
    Source, Verdict,
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
fn a_denial_says_what_its_own_quota_has_left_of_units_that_a_larger_one_counts() {
    for (own, gold) in every_algorithm(5).into_iter().zip(every_algorithm(9)) {
        for used in 1..=9_u64 {
            let (limiter, free, gold) = of_two_quotas(Rule::new("rule", own), gold);
            acquire(&limiter, gold.with_cost(used));
            let left = 5_u64.saturating_sub(used);
            let denied = acquire(&limiter, free.with_cost(5));
            assert_eq!(denied.remaining(), left, "{own}, {used} used");
            assert_eq!(peek(&limiter, free.with_cost(0)).remaining(), left);
            assert_eq!(peek(&limiter, gold.with_cost(0)).remaining(), 9 - used);
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

#[test]
fn units_of_a_plan_that_has_no_limit_any_more_count_under_the_rule_s_own_quota() {
    // The last one is the algorithm of before: nothing would move to another table.
    for own in every_algorithm(20).into_iter().take(4) {
        let rule = |own, gold| [Rule::new("rule", own).plan("gold", gold)];
        let before = rule(Quota::gcra(10, MINUTE), Quota::gcra(40, MINUTE));
        let limiter = LiveLimiter::new(store().0, before).expect("valid");
        let gold = limiter
            .limiter()
            .check_with_plan("rule", "gold", &Key::of("ann"));
        acquire(&limiter.limiter(), gold.expect("a plan").with_cost(8));
        limiter
            .replace(rule(own, Quota::unlimited()))
            .expect("valid");
        let limiter = limiter.limiter();
        let check = limiter.check("rule", &Key::of("ann")).expect("a rule");
        assert_eq!(peek(&limiter, check.with_cost(0)).remaining(), 12, "{own}");
    }
}
