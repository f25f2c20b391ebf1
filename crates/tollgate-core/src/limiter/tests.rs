//! Tests of the limiter.

use super::*;
use crate::{key::Fingerprint, memory::MemoryStore, quota::MAX_PERIOD};

#[test]
fn a_check_of_a_rule_that_is_not_there_is_denied() {
    let rule = Rule::new("wide", Quota::gcra(1_000, MAX_PERIOD));
    let limiter = Limiter::new(MemoryStore::new(), [rule]).expect("valid");
    let by_hand = Check::new(7, Fingerprint::from_bits(0), 1);
    let made_here = limiter.check("wide", &Key::shared()).expect("a rule");
    for check in [by_hand, made_here.with_rule(1)] {
        for answer in [limiter.peek(&[check]), limiter.acquire(&[check])] {
            assert!(!answer.ready().expect("at once").is_allowed());
        }
    }
}

#[test]
fn a_check_may_be_given_one_quota_after_another() {
    let [own, plan, brought, other] = [5, 6, 7, 8].map(|it| Quota::gcra(it, MAX_PERIOD));
    let rule = Rule::new("rule", own).plan("plan", plan).variable_quota();
    let limiter = Limiter::new(MemoryStore::new(), [rule]).expect("valid");
    let mut check = limiter.check("rule", &Key::shared()).expect("a rule");
    for quota in [brought, own, brought, plan, other, own] {
        check = check.with_quota(limiter.quota_for("rule", quota).expect("it is of the rule"));
        let looked = limiter.peek(&[check.with_cost(0)]).ready();
        let left = looked.expect("at once").verdicts()[0].remaining();
        assert_eq!(left, quota.limit());
    }
    assert!(limiter.quota_for("none", own).is_err());
    let elsewhere = Limiter::new(MemoryStore::new(), [Rule::new("rule", own)]).expect("valid");
    let theirs = elsewhere.check("rule", &Key::shared()).expect("a rule");
    let answer = limiter.acquire(&[theirs.with_plan(1)]).ready();
    assert!(!answer.expect("at once").is_allowed());
}

#[test]
fn names_stay_in_use_while_a_limiter_on_the_same_state_is_there() {
    type Again = fn(&Limiter) -> Result<Limiter, RuleError>;
    let rule = |limit| Rule::new("rule", Quota::gcra(limit, MAX_PERIOD));
    let agains: [Again; 2] = [
        |limiter| limiter.shared_by(NonZeroU32::MAX),
        |limiter| limiter.succeeding(limiter),
    ];
    for again in agains {
        let store = MemoryStore::new();
        let first = Limiter::new(store.clone(), [rule(1)]).expect("valid");
        let again = again(&first).expect("valid");
        let under_way = again.unregistered();
        drop(first);
        assert!(Limiter::new(store.clone(), [rule(2)]).is_err());
        drop(again);
        drop(Limiter::new(store, [rule(2)]).expect("the name is free"));
        drop(under_way);
    }
}

#[test]
fn a_threshold_is_no_rule_to_check_and_a_look_has_it() {
    let wide = Quota::fixed_window(9, MAX_PERIOD);
    let rules = [
        Rule::new("rule", wide).threshold("warn", Quota::fixed_window(5, MAX_PERIOD)),
        Rule::new("other", wide),
    ];
    let limiter = Limiter::new(MemoryStore::new(), rules).expect("valid");
    let names = limiter.rules().rules().iter().map(Rule::name);
    assert_eq!(names.collect::<Vec<_>>(), ["rule", "other", "warn"]);
    assert!(limiter.check("warn", &Key::shared()).is_err());
    assert!(limiter.top_keys("warn", 9).is_err());
    let check = limiter.check("rule", &Key::shared()).expect("a rule");
    for answer in [
        limiter.acquire(&[check]),
        limiter.peek(&[check.with_cost(0)]),
    ] {
        let decision = answer.ready().expect("at once");
        let left = decision.verdicts().iter().map(Verdict::remaining);
        assert_eq!(left.collect::<Vec<_>>(), [8, 4]);
    }
}
