//! Requests of several rules.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::{Check, MINUTE, Outcome, Quota, Rule, Verdict, store::Settlement};

use crate::{
    BoundRules, Next,
    engine::tests::subject::{BY_KEY, LEASED, Subject, denied, fits, key, one, tracked},
};

#[test]
fn a_denial_in_one_place_cancels_what_earlier_places_took_and_the_rest_is_not_decided() {
    let mut subject = Subject::of([
        Rule::new("rule", Quota::gcra(6_000, MINUTE)).consistency(LEASED),
        Rule::new("first", Quota::gcra(10, MINUTE)),
        Rule::new("second", Quota::gcra(10, MINUTE)),
        Rule::new("third", Quota::gcra(10, MINUTE)),
    ]);
    let rules = Arc::clone(&subject.rules.rules);
    subject.rules = BoundRules::new(&subject.engine, rules, BY_KEY, |_| None);
    subject.known(fits(5_000, 500_000), tracked(10, 7));
    // After the grant, so that it comes back to it.
    subject.advance(1);
    let check = |rule: u16| Check::new(rule, key(rule.into()), 1);
    let checks = [check(1), one(), check(2), check(3)];
    let query = subject.query(&checks);
    assert_eq!(
        (query.checks(), query.has_more_steps()),
        (&[check(1)][..], true)
    );
    let reply = subject.reply(&query, fits(9, 6_000_000), None);
    let Next::Query(mut query) = query.finish(Ok(reply), subject.now()) else {
        panic!("two places are left");
    };
    subject.fill(&mut query);
    assert_eq!(query.checks(), [check(2)]);
    let done = subject.finish(query, denied(60_000_000, 6_000_000), None);
    let outcomes: SmallVec<[_; 4]> = done
        .decision
        .verdicts()
        .iter()
        .map(Verdict::outcome)
        .collect();
    let (allow, deny) = (Outcome::Allow, Outcome::Deny);
    assert_eq!(outcomes[..], [allow, allow, deny, Outcome::NotDecided]);
    let settled = done.follow_up.settle.iter();
    let settled: Vec<_> = settled
        .map(|(receipt, how)| (receipt.check, *how))
        .collect();
    assert_eq!(settled, [(check(1), Settlement::Cancel)]);
    // The unit of the lease is here again.
    assert_eq!(subject.engine.usage(subject.now()).units_on_lease, 10);
}
