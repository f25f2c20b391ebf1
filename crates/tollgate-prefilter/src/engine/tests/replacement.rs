//! Rule sets that replace others.

use tollgate_core::{Check, MINUTE, Quota, Rule, Source, store::Settlement};

use crate::{
    Begin, BoundRules, Places,
    engine::tests::subject::{KEY, LEASED, Subject, denied, fits, one, receipt, rule_set, tracked},
};

#[test]
fn a_rule_set_that_replaces_another_keeps_leases_and_denials_of_rules_that_have_not_changed() {
    let rules = |limit| {
        [
            Rule::new("rule", Quota::gcra(6_000, MINUTE)).consistency(LEASED),
            Rule::new("other", Quota::gcra(limit, MINUTE)).consistency(LEASED),
            Rule::new("exact", Quota::gcra(9, MINUTE)),
        ]
    };
    let mut subject = Subject::of(rules(6_000));
    subject.known(fits(5_000, 500_000), tracked(10, 7));
    let other = Check::new(1, KEY, 1);
    let mut is_leased = false;
    while !is_leased {
        let query = subject.query(&[other]);
        is_leased = query.leases().iter().any(|it| it.query.tracked > 0);
        let grant = tracked(20, 7).filter(|_| is_leased);
        drop(subject.finish(query, fits(5_000, 500_000), grant));
    }
    let exact = Check::new(2, KEY, 1);
    let _ = subject.decided(&[exact], denied(60_000_000, 10_000_000));
    // In another order, and one of them changed.
    let [first, second, third] = rules(5_000);
    let new = BoundRules::new(
        &subject.engine,
        rule_set([third, second, first]),
        Places::default(),
        |_| None,
    );
    let old = std::mem::replace(&mut subject.rules, new);
    let returned: Vec<_> = old.retire(subject.now());
    let [query] = &returned[..] else {
        panic!("the lease of the changed rule goes back: {returned:?}");
    };
    assert_eq!(query.leases()[0].check.rule(), 1);
    let same = Check::new(2, KEY, 1);
    assert_eq!(
        subject.decide(&[same]).verdicts()[0].source(),
        Source::Lease
    );
    let exact = Check::new(0, KEY, 1);
    let denied = subject.decide(&[exact]);
    assert_eq!(denied.verdicts()[0].source(), Source::DenyCache);
    assert!(!subject.is_local(&[other]));
    // Requests of the old rules are still served, and so is what they give back.
    let decision = match old.begin(&[one()], subject.now()) {
        Begin::Decided(decision) => decision,
        Begin::Query(query) => panic!("the lease is there: {query:?}"),
    };
    let held = || subject.engine.usage(subject.now()).units_on_lease;
    let before = held();
    subject.advance(1);
    let spent = receipt(one(), &decision);
    assert!(
        old.settle(&[spent], Settlement::Cancel, subject.now())
            .is_empty()
    );
    assert_eq!(held(), before + 1);
    drop(old);
    assert_eq!(held(), before + 1);
    assert!(subject.is_local(&[same]));
}
