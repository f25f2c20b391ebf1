//! Requests that wait for units.

use std::{sync::Arc, time::Duration};

use tollgate_core::{
    Check, MINUTE, Outcome, Quota, Rule, SECOND,
    algorithm::{GcraState, Taken},
    store::Hold,
};

use crate::{
    Begin, BoundRules,
    engine::tests::subject::{BY_KEY, KEY, LEASED, Subject, denied, done, fits, key, one, tracked},
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
    let taken = Taken::new(reply.at, reply.at + 3_000_000);
    let place = Hold::in_queue(checks[1], taken, GcraState::new(reply.at + 2_000_000, 0, 0));
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
        match subject.rules.begin_within(&checks, patience, subject.now()) {
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
    subject.rules = BoundRules::new(&subject.engine, rules, BY_KEY, |_| None);
    let query = subject.query(&[Check::new(0, KEY, 1), Check::new(1, key(8), 1)]);
    assert_eq!((query.checks.len(), query.patience), (1, 0));
    let query = subject.query(&[Check::new(0, KEY, 1), Check::new(1, KEY, 1)]);
    assert_eq!((query.checks.len(), query.patience), (2, 60_000_000));
}

#[test]
fn a_request_is_denied_here_only_while_no_request_could_queue_up() {
    let subject = Subject::of([queue("queue", 5 * SECOND)]);
    let check = [one()];
    let begin = |patience| {
        let begun = subject.rules.begin_within(&check, patience, subject.now());
        match begun {
            Begin::Query(_) => None,
            Begin::Decided(decision) => decision.retry_after(),
        }
    };
    let denies = |seconds: u64| {
        let Begin::Query(mut query) = subject.rules.begin_within(&check, 1_000_000, subject.now())
        else {
            panic!("it is not known");
        };
        subject.fill(&mut query);
        let full = denied(seconds * 1_000_000, (seconds - 1) * 1_000_000);
        let denied = subject.finish(query, full, None);
        assert_eq!(denied.decision.outcome(), Outcome::Deny);
    };
    // A queue of three seconds behind the one unit of the bucket: a more patient request may queue up behind it meanwhile.
    denies(4);
    assert_eq!((begin(1_000_000), begin(u64::MAX)), (None, None));
    // One of five: the next one starts in six, and no request waits longer than five.
    denies(6);
    // It is as long ago as the reply took.
    let late = Duration::from_micros(2 * 150);
    let about = |expected: Duration| {
        move |retry: Duration| retry >= expected - late && retry <= expected + late
    };
    assert!(begin(1_000_000).is_some_and(about(5 * SECOND)));
    assert!(begin(0).is_some_and(about(6 * SECOND)));
    assert!(begin(u64::MAX).is_some_and(about(SECOND)));
    subject.advance(900_000);
    assert!(begin(u64::MAX).is_some_and(about(SECOND / 10)));
}
