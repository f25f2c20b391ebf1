//! Decisions that take nothing: what the store says, with what this process holds less what it has not reported.

use tollgate_core::{Check, Outcome, Quota, Retry, SECOND, Verdict, algorithm::Assessment};

use crate::{
    Begin,
    engine::tests::subject::{EVENTUAL, Subject, fits, leased_bucket, one, tracked},
};

/// What a process says that peeks and spends `meanwhile` units, when the store gives this answer.
fn peek(subject: &Subject, check: Check, meanwhile: u64, answer: Assessment) -> Verdict {
    let Begin::Query(mut query) = subject.rules.peek(&[check], subject.now()) else {
        panic!("the store decides it");
    };
    subject.fill(&mut query);
    assert!(query.leases.is_empty() && !query.takes());
    if meanwhile > 0 {
        assert!(subject.is_local(&[one().with_cost(meanwhile)]));
    }
    subject.finish(query, answer, None).decision.verdicts()[0]
}

fn said(verdict: Verdict) -> (Outcome, u64, Retry) {
    (verdict.outcome(), verdict.remaining(), verdict.retry())
}

#[test]
fn what_a_process_holds_is_added_to_what_the_store_says_is_left() {
    let subject = leased_bucket(tracked(10, 7));
    assert!(subject.is_local(&[one()]));
    let peek = |cost, answer| said(peek(&subject, one().with_cost(cost), 0, answer));
    let none = Assessment::new(false, 0, 500_000, Retry::after_micros(700));
    assert_eq!(
        peek(1, fits(4_000, 500_000)),
        (Outcome::Allow, 4_009, Retry::Now)
    );
    // The store denies, and the lease has as many.
    assert_eq!(peek(9, none), (Outcome::Allow, 9, Retry::Now));
    let later = Retry::after_micros(700);
    assert_eq!(peek(10, none), (Outcome::Deny, 9, later));
}

#[test]
fn what_a_process_has_counted_since_it_asked_is_taken_off_what_the_store_says_is_left() {
    let said = |cost, answer| {
        let subject = Subject::new(Quota::fixed_window(1_000, SECOND), EVENTUAL);
        subject.known(fits(900, 1_000_000), None);
        said(peek(&subject, one().with_cost(cost), 3, answer))
    };
    assert_eq!(
        said(797, fits(800, 600_000)),
        (Outcome::Allow, 797, Retry::Now)
    );
    let later = Retry::after_micros(600_000);
    assert_eq!(said(798, fits(800, 600_000)), (Outcome::Deny, 797, later));
    // Nothing fits in nothing, and a unit only when the window is over.
    assert_eq!(said(0, fits(3, 600_000)), (Outcome::Allow, 0, later));
    assert_eq!(said(0, fits(2, 0)).2, Retry::after_micros(1));
}
