//! Quotas that checks bring along: which of them a rule takes, and as what.

use tollgate_core::{Key, Limiter, MINUTE, MemoryStore, Quota, Rule, RuleErrorKind, SECOND};

#[test]
fn a_rule_refuses_a_quota_that_cannot_be_counted_with_its_own() {
    let gcra = Quota::gcra(10, MINUTE);
    let rule = |quota| Rule::new("rule", quota);
    for (rule, quota, words) in [
        (rule(gcra), Quota::gcra(20, MINUTE), "add variable_quota()"),
        (
            rule(gcra).variable_quota(),
            Quota::gcra(0, MINUTE),
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
    }
    for limit in [20, 30, 40] {
        let brought = limiter.quota_for("rule", quota(limit)).expect("known");
        let look = check.with_quota(brought).with_cost(0);
        let decision = limiter.peek(&[look]).ready().expect("at once");
        assert_eq!(decision.verdicts()[0].remaining(), limit);
    }
}
