//! States that one quota wrote and another one reads: what a look, a denial and a wait say of them.

use std::time::Duration;

use tollgate_core::{
    Check, Key, Limiter, LiveLimiter, MINUTE, ManualClock, MemoryStore, Outcome, Quota, Rule,
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
fn a_queue_behind_one_quota_is_as_long_under_another() {
    let quota = |burst| Quota::gcra(1, SECOND).burst(burst);
    let rule = Rule::new("rule", quota(5)).wait(MINUTE);
    let (limiter, free, gold) = of_two_quotas(rule, quota(2));
    // Two at once, and three that wait.
    for waits in [0, 0, 1, 2, 3] {
        let decision = at_once(limiter.acquire(&[gold]));
        assert_eq!(decision.delay(), waits * SECOND);
    }
    // The burst counts as full, and the next place is behind the three.
    let looked = peek(&limiter, free.with_cost(0));
    assert_eq!((looked.remaining(), looked.reset_after()), (0, 8 * SECOND));
    assert_eq!(at_once(limiter.acquire(&[free])).delay(), 4 * SECOND);
}

#[test]
fn a_denial_counts_the_requests_that_have_begun_to_wait_since_the_one_before() {
    let rule = Rule::new("rule", Quota::gcra(1, SECOND).burst(5)).wait(2 * SECOND);
    let limiter = Limiter::new(store().0, [rule]).expect("a valid rule");
    let check = limiter.check("rule", &Key::of("ann")).expect("a rule");
    let retry = |cost| {
        let denied = at_once(limiter.acquire(&[check.with_cost(cost)]));
        assert!(!denied.is_allowed());
        denied.retry().delay()
    };
    assert!(at_once(limiter.acquire(&[check.with_cost(5)])).is_allowed());
    assert_eq!(retry(5), Some(3 * SECOND));
    for (waits, next) in [(1, 4), (2, 5)] {
        let decision = at_once(limiter.acquire(&[check]));
        assert_eq!(decision.delay(), waits * SECOND);
        assert_eq!(retry(5), Some(next * SECOND));
    }
}

#[test]
fn a_clock_that_goes_back_after_a_denial_denies_no_longer_than_a_full_quota_does() {
    for quota in [
        Quota::gcra(5, SECOND),
        Quota::gcra(7, SECOND).burst(3),
        Quota::fixed_window(5, SECOND),
        Quota::sliding_window(5, SECOND),
        Quota::sliding_buckets(5, SECOND),
        Quota::sliding_log(5, SECOND),
    ] {
        let (store, clock) = store();
        let limiter = Limiter::new(store, [Rule::new("rule", quota)]).expect("valid");
        let check = limiter.check("rule", &Key::of("ann")).expect("a rule");
        while acquire(&limiter, check).remaining() > 0 {}
        for back in [1, 3, 3_600] {
            acquire(&limiter, check);
            let now = clock.now();
            clock.set(now - back * 1_000_000);
            // The first denial repairs the state, also where the one before it is remembered.
            acquire(&limiter, check);
            let again = acquire(&limiter, check);
            // A state stays within the next window, and a sliding one counts a window longer.
            assert!(again.reset_after() <= 3 * SECOND, "{quota}: {again:?}");
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
fn a_denial_counts_the_units_that_were_taken_since_the_one_before() {
    for quota in every_algorithm(5) {
        for is_alone in [true, false] {
            let rules = [
                Rule::new("rule", quota),
                Rule::new("other", Quota::gcra(9, MINUTE)),
            ];
            let limiter = Limiter::new(store().0, rules).expect("valid");
            let [rule, other] = ["rule", "other"].map(|name| limiter.check(name, &Key::of("ann")));
            let (rule, other) = (rule.expect("a rule"), other.expect("a rule"));
            let by = |cost| {
                let checks = [rule.with_cost(cost), other];
                let checks = if is_alone { &checks[..1] } else { &checks[..] };
                let verdict = at_once(limiter.acquire(checks)).verdicts()[0];
                (verdict.outcome(), verdict.remaining())
            };
            for (cost, outcome, left) in [
                (3, Outcome::Allow, 2),
                (3, Outcome::Deny, 2),
                (1, Outcome::Allow, 1),
                (3, Outcome::Deny, 1),
                (1, Outcome::Allow, 0),
                (3, Outcome::Deny, 0),
            ] {
                assert_eq!(by(cost), (outcome, left), "{quota}, {cost}, {is_alone}");
            }
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
