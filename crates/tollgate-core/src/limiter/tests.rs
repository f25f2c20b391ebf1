//! Tests of the limiter.

use super::*;
use crate::{key::Fingerprint, memory::MemoryStore, quota::MAX_PERIOD, striped};

#[test]
fn a_request_with_slots_counts_on_its_own_stripe_alone() {
    let rule = Rule::new("at-once", Quota::concurrent(1_000));
    let limiter = Limiter::new(MemoryStore::new(), [rule]).expect("a valid rule");
    let owners = limiter.shared.slot_owners.as_ref().expect("it has slots");
    let counts = || -> Vec<usize> { owners.iter().map(Arc::strong_count).collect() };
    let before = counts();
    striped::on_each_stripe(|| {
        let check = limiter.check("at-once", &Key::shared()).expect("a rule");
        let running = [limiter.acquire(&[check]), limiter.acquire(&[check])];
        let mut expected = before.clone();
        expected[striped::current_stripe()] += running.len();
        assert_eq!(counts(), expected);
    });
    assert_eq!(counts(), before);
}

#[test]
fn a_check_of_another_limiter_is_denied() {
    let two = [
        Rule::new("wide", Quota::gcra(1_000, MAX_PERIOD)),
        Rule::new("narrow", Quota::gcra(1, MAX_PERIOD)),
    ];
    let other = Limiter::new(MemoryStore::new(), two).expect("valid");
    let rule = Rule::new("wide", Quota::gcra(1_000, MAX_PERIOD));
    let limiter = Limiter::new(MemoryStore::new(), [rule]).expect("valid");
    for rule in ["wide", "narrow"] {
        let check = other.check(rule, &Key::shared()).expect("there is one");
        let decision = limiter.acquire(&[check]).ready().expect("at once");
        assert!(!decision.is_allowed(), "{rule}");
        // And so a look says.
        let looked = limiter.peek(&[check]).ready().expect("at once");
        assert_eq!(looked.outcome(), Outcome::Deny, "{rule}");
        assert_eq!(looked.reason(), decision.reason(), "{rule}");
    }
    // Those of a rule that is not there, made by hand and here.
    let by_hand = Check::new(7, Fingerprint::from_bits(0), 1);
    let made_here = limiter.check("wide", &Key::shared()).expect("a rule");
    for check in [by_hand, made_here.with_rule(1)] {
        for answer in [limiter.peek(&[check]), limiter.acquire(&[check])] {
            assert!(!answer.ready().expect("at once").is_allowed());
        }
    }
}

#[test]
fn names_stay_in_use_while_a_limiter_on_the_same_state_is_there() {
    type Again = fn(&Limiter) -> Result<Limiter, RuleError>;
    let rule = |limit| Rule::new("rule", Quota::gcra(limit, MAX_PERIOD));
    let agains: [Again; 3] = [
        |limiter| limiter.shared_by(NonZeroU32::MAX),
        |limiter| limiter.with_local_clock(Clock::system()),
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

#[test]
fn top_keys_have_the_requests_and_denials_of_each_decision() {
    let two = Quota::fixed_window(2, MAX_PERIOD);
    let enforced = || Rule::new("enforced", two).top_keys();
    let shadow = || Rule::new("shadow", two).shadow().top_keys();
    let unlimited = || Rule::new("unlimited", Quota::unlimited()).top_keys();
    let acquired = |rules: Vec<Rule>, together: bool| {
        let limiter = Limiter::new(MemoryStore::new(), rules).expect("valid");
        let names: Vec<&str> = limiter.rules().given().iter().map(Rule::name).collect();
        let checks: Vec<Check> = names
            .iter()
            .map(|name| limiter.check(name, &Key::of(["ada"])).expect("a rule"))
            .collect();
        for _ in 0..4 {
            match together {
                true => drop(limiter.acquire(&checks)),
                false => checks.iter().for_each(|one| drop(limiter.acquire(&[*one]))),
            }
        }
        let top = |name: &&str| {
            let top = limiter.top_keys(name, 9).expect("a rule");
            let of = |top: &TopKey| (top.at_least, top.at_most, top.denials, top.cost);
            top.iter().map(of).collect::<Vec<_>>()
        };
        names.iter().map(top).collect::<Vec<_>>()
    };
    for together in [false, true] {
        // The last of a rule that denies is answered by its deny cache.
        let denied_twice = vec![(4, 4, 2, 4)];
        let rules = vec![enforced(), shadow(), unlimited()];
        let tops = acquired(rules, together);
        assert_eq!(
            tops[..2],
            [denied_twice.clone(), denied_twice],
            "{together}"
        );
        assert_eq!(tops[2], [], "{together}: it decides nothing");
    }
}
