//! Requests that wait for units.

use std::{sync::Arc, time::Duration};

use tollgate_core::{
    Check, MINUTE, Outcome, Quota, Rule, SECOND,
    algorithm::{GcraState, Taken},
    store::Hold,
};

use crate::{
    Begin, LocalRules,
    engine::tests::subject::{BY_KEY, KEY, LEASED, Subject, done, fits, key, one, tracked},
};

fn queue(name: &str, at_most: Duration) -> Rule {
    Rule::new(name, Quota::gcra(1, SECOND)).wait(at_most)
}

#[test]
fn a_request_that_waits_gives_back_what_this_process_has_spent_for_it() {
    let quota = Quota::gcra(6_000, MINUTE);
    let subject = Subject::of([
        Rule::new("leased", quota).consistency(LEASED),
        queue("queue", MINUTE),
    ]);
    subject.known(fits(5_000, 500_000), tracked(10, 7));
    subject.advance(1);
    let checks = [one(), Check::new(1, KEY, 1)];
    let query = subject.query(&checks);
    // The lease has paid already.
    assert_eq!(query.checks[..], [checks[1]]);
    assert_eq!(subject.engine.usage(subject.now()).units_on_lease, 9);
    let mut reply = subject.reply(&query, fits(0, 1_000_000), None);
    let at = reply.decision.at();
    let taken = Taken::new(at, at + 3_000_000);
    let place = Hold::in_queue(checks[1], taken, GcraState::new(at + 2_000_000, 0, 0));
    reply.decision = reply.decision.delayed(2 * SECOND, [place]);
    let done = done(query.finish(Ok(reply), subject.now()));
    assert_eq!(done.decision.outcome(), Outcome::Allow);
    assert_eq!(done.decision.delay(), 2 * SECOND);
    assert_eq!(done.decision.queue_places(), [place]);
    // It pays when it starts.
    assert_eq!(subject.engine.usage(subject.now()).units_on_lease, 10);
}

#[test]
fn a_query_waits_as_long_as_the_least_patient_of_its_request() {
    let subject = Subject::of([
        queue("long", MINUTE),
        queue("short", SECOND),
        Rule::new("none", Quota::gcra(1, SECOND)),
    ]);
    let patience = |rules: &[u16], cost, patience| {
        let checks = rules.iter().map(|rule| Check::new(*rule, KEY, cost));
        let checks: Vec<_> = checks.collect();
        match subject.rules.begin(&checks, patience, subject.now()) {
            Begin::Query(query) => query.patience,
            Begin::Decided(decision) => panic!("the store decides it: {decision:?}"),
        }
    };
    assert_eq!(patience(&[0], 1, u64::MAX), 60_000_000);
    assert_eq!(patience(&[0, 1], 1, u64::MAX), 1_000_000);
    assert_eq!(patience(&[0, 2], 1, u64::MAX), 60_000_000);
    assert_eq!(patience(&[0, 1], 1, 7), 7);
}

#[test]
fn a_request_whose_states_are_in_several_places_does_not_wait() {
    let mut subject = Subject::of([queue("one", MINUTE), queue("two", MINUTE)]);
    let rules = Arc::clone(&subject.rules.rules);
    subject.rules = LocalRules::new(&subject.engine, rules, BY_KEY, |_| None);
    let query = subject.query(&[Check::new(0, KEY, 1), Check::new(1, key(8), 1)]);
    assert_eq!((query.checks.len(), query.patience), (1, 0));
    let query = subject.query(&[Check::new(0, KEY, 1), Check::new(1, KEY, 1)]);
    assert_eq!((query.checks.len(), query.patience), (2, 60_000_000));
}
