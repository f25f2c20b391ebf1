//! The deny cache.

use tollgate_core::{Consistency, MINUTE, Quota};

use crate::engine::tests::subject::{Subject, denied, leased_bucket, one, tracked};

#[test]
fn a_denial_is_cached_from_when_its_query_was_sent_and_not_after_the_clock_went_back() {
    let subject = Subject::new(Quota::gcra(6_000, MINUTE), Consistency::Exact);
    let sent = subject.now();
    let _ = subject.decided(&[one()], denied(60_000_000, 10_000));
    for (at, is_denied) in [(9_999, true), (10_000, false), (299, true)] {
        subject.now.set(sent + at);
        assert_eq!(subject.is_local(&[one()]), is_denied, "{at}");
    }
    subject.now.set(sent - 1_000);
    assert!(!subject.is_local(&[one()]));
}

#[test]
fn a_cached_denial_is_forgotten_when_a_lease_has_gone_back() {
    let subject = leased_bucket(tracked(10, 7));
    let large = [one().with_cost(20)];
    // The lease is in the way of it, and goes back with the query. It is granted again.
    let query = subject.query(&large);
    drop(subject.finish(query, denied(60_000_000, 10_000), tracked(10, 8)));
    assert!(subject.is_local(&large));
    assert_eq!(subject.flush(), (0, 1));
    assert!(!subject.is_local(&large));
}
