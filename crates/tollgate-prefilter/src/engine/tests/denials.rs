//! The deny cache.

use tollgate_core::{
    Check, Consistency, Decision, MINUTE, OnStoreError, Outcome, Quota, Retry, Rule, Verdict,
    algorithm::Assessment,
    store::{Hold, Settlement},
};

use crate::{
    Next, NoReply, Query, Reply,
    engine::tests::subject::{
        BY_KEY, EVENTUAL, Subject, denied, done, fits, key, leased_bucket, one, receipt, tracked,
    },
};

/// Costs more than is left in these tests, and less than the limit.
fn large() -> [Check; 1] {
    [one().with_cost(20)]
}

/// A bucket that the store decides, and what it has admitted of a key that it denies since.
fn admitted_and_denied() -> (Subject, Hold) {
    let subject = Subject::new(Quota::gcra(6_000, MINUTE), Consistency::Exact);
    let admitted = subject.decided(&[one()], fits(0, 60_000_000));
    let _ = subject.decided(&large(), denied(60_000_000, 200_000));
    assert!(subject.is_local(&large()));
    (subject, receipt(one(), &admitted))
}

/// Two rules whose states lie in two places. The store has taken three units of the first, a window, for a request whose second
/// place is queried. Since then it has denied another request of the key.
fn denied_between_two_steps() -> (Subject, Query) {
    let rules = [
        Rule::new("rule", Quota::fixed_window(1_000, MINUTE)),
        Rule::new("other", Quota::gcra(10, MINUTE)),
    ];
    let subject = Subject::on(BY_KEY, rules);
    let query = subject.query(&[one().with_cost(3), Check::new(1, key(8), 1)]);
    let two_left = Assessment::new(true, 2, 50_000_000, Retry::after_micros(50_000_000));
    let reply = subject.reply(&query, two_left, None);
    let Next::Query(mut query) = query.finish(Ok(reply), subject.now()) else {
        panic!("the second rule has a place of its own");
    };
    subject.fill(&mut query);
    let _ = subject.decided(&large(), left_over());
    assert!(subject.is_local(&large()));
    (subject, query)
}

/// Two units are left in a window, and do not suffice.
fn left_over() -> Assessment {
    Assessment::new(false, 2, 50_000_000, Retry::after_micros(50_000_000))
}

#[test]
fn a_cached_denial_is_forgotten_when_a_lease_may_have_gone_back() {
    let subject = leased_bucket(tracked(10, 7));
    let query = subject.query(&large());
    drop(subject.finish(query, denied(60_000_000, 10_000), tracked(10, 8)));
    for mut query in subject.rules.flush(subject.now()) {
        subject.fill(&mut query);
        assert_eq!(query.leases.len(), 1);
        assert!(subject.is_local(&large()));
        drop(done(query.finish(Err(NoReply::NoAnswer), subject.now())));
    }
    assert!(!subject.is_local(&large()));
}

#[test]
fn a_cached_denial_is_forgotten_when_a_ticket_gives_units_back_and_not_when_it_takes_more() {
    for (how, is_forgotten) in [
        (Settlement::Cancel, true),
        (Settlement::Refund(1), true),
        (Settlement::Charge(1), false),
    ] {
        let (subject, admitted) = admitted_and_denied();
        assert_eq!(subject.settle(admitted, how), [(admitted, how)]);
        assert_eq!(subject.is_local(&large()), !is_forgotten, "{how:?}");
    }
}

#[test]
fn a_denial_is_not_remembered_whose_query_was_sent_before_a_ticket_gave_units_back() {
    let subject = Subject::new(Quota::gcra(6_000, MINUTE), Consistency::Exact);
    let admitted = subject.decided(&[one()], fits(0, 60_000_000));
    let query = subject.query(&large());
    let _ = subject.settle(receipt(one(), &admitted), Settlement::Cancel);
    drop(subject.finish(query, denied(60_000_000, 200_000), None));
    assert!(!subject.is_local(&large()));
}

#[test]
fn a_cached_denial_is_forgotten_when_the_same_key_is_admitted() {
    let subject = Subject::new(Quota::fixed_window(1_000, MINUTE), Consistency::Exact);
    let _ = subject.decided(&large(), left_over());
    // A cost of nothing takes nothing.
    let _ = subject.decided(&[one().with_cost(0)], fits(2, 50_000_000));
    assert!(subject.is_local(&large()));
    let _ = subject.decided(&[one()], fits(1, 50_000_000));
    assert!(!subject.is_local(&large()));
}

#[test]
fn a_cached_denial_is_forgotten_when_the_process_counts_units_of_the_key() {
    let subject = Subject::new(Quota::fixed_window(1_000, MINUTE), EVENTUAL);
    subject.known(fits(3, 50_000_000), None);
    let _ = subject.decided(&large(), left_over());
    assert!(subject.is_local(&large()));
    // It said that two are left.
    assert!(subject.decide(&[one()]).is_allowed());
    assert!(!subject.is_local(&large()));
}

#[test]
fn a_cached_denial_is_forgotten_when_a_reset_begins_and_when_it_ends() {
    let (subject, _) = admitted_and_denied();
    let (reset, _) = subject.rules.begin_reset(&[one()], subject.now());
    // The server may have done it already.
    let query = subject.query(&large());
    // Or not yet.
    drop(subject.finish(query, denied(60_000_000, 200_000), None));
    assert!(subject.is_local(&large()));
    let at = subject.engine.store_now(subject.now());
    let reply = Reply::new(Decision::new(at, [], |_| true));
    drop(reset.finish(Ok(reply), subject.now()));
    assert!(!subject.is_local(&large()));
}

#[test]
fn units_that_go_back_when_another_place_denies_are_left() {
    let (subject, query) = denied_between_two_steps();
    let done = subject.finish(query, denied(60_000_000, 10_000), None);
    let verdict = done.decision.verdicts()[0];
    assert_eq!((verdict.remaining(), verdict.retry()), (5, Retry::Now));
}

#[test]
fn a_failure_that_denies_ends_the_steps_and_a_forgotten_key_does_not() {
    let quota = Quota::fixed_window(10, MINUTE);
    let rule = |name| Rule::new(name, quota).on_store_error(OnStoreError::Deny);
    let subject = Subject::on(BY_KEY, ["rule", "other"].map(rule));
    let failed = Verdict::unanswered(0, 0, Outcome::Failed);
    for (verdict, goes_on) in [(failed, false), (failed.forgotten(), true)] {
        let query = subject.query(&[one(), Check::new(1, key(8), 1)]);
        let reply = Reply::new(Decision::new(subject.now(), [verdict], |_| true));
        let next = query.finish(Ok(reply), subject.now());
        assert_eq!(matches!(next, Next::Query(_)), goes_on);
    }
}

#[test]
fn a_cached_denial_is_forgotten_when_another_place_denies_and_the_units_go_back() {
    let (subject, query) = denied_between_two_steps();
    let done = subject.finish(query, denied(60_000_000, 10_000), None);
    assert!(matches!(
        done.follow_up.settle[..],
        [(_, Settlement::Cancel)]
    ));
    assert!(!subject.is_local(&large()));
}

#[test]
fn a_cached_denial_is_forgotten_when_units_go_back_that_were_counted_here_and_reported() {
    let rules = [
        Rule::new("rule", Quota::fixed_window(1_000, MINUTE)).consistency(EVENTUAL),
        Rule::new("other", Quota::gcra(10, MINUTE)),
    ];
    let subject = Subject::of(rules);
    subject.known(fits(5, 50_000_000), None);
    let query = subject.query(&[one().with_cost(3), Check::new(1, key(8), 1)]);
    assert_eq!(query.checks[0].rule(), 1);
    subject.advance(1_000);
    // The three units are reported with it.
    let reporting = subject.query(&large());
    assert_eq!(reporting.reports[0].cost(), 3);
    drop(subject.finish(reporting, left_over(), None));
    assert!(subject.is_local(&large()));
    let done = subject.finish(query, denied(60_000_000, 10_000), None);
    assert!(matches!(
        done.follow_up.settle[..],
        [(_, Settlement::Refund(3))]
    ));
    assert!(!subject.is_local(&large()));
}
