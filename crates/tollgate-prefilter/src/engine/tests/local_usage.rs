//! Local usage, and reporting it.

use tollgate_core::{Check, Quota, Rule, SECOND, types::CheckPolicy};

use crate::engine::tests::subject::{EVENTUAL, Subject, WAY, fits, key, one};

#[test]
fn local_usage_begins_with_the_second_request_of_a_key_wherever_it_is_in_a_request() {
    let rule = |name, quota| Rule::new(name, quota).consistency(EVENTUAL);
    let subject = Subject::of([
        rule("rule", Quota::fixed_window(1_000, SECOND)),
        rule("other", Quota::fixed_window(2_000, SECOND)),
    ]);
    let answer = fits(900, 1_000_000);
    subject.known(answer, None);
    let other = |number| Check::new(1, key(number), 1);
    let sent = |checks: &[Check]| {
        let query = subject.query(checks);
        let sent: Vec<_> = query.checks.to_vec();
        drop(subject.finish(query, answer, None));
        sent
    };
    // The key of the first rule is decided locally.
    assert_eq!(sent(&[one(), other(8)]), [other(8)]);
    assert_eq!(sent(&[other(9), one(), other(8)]), [other(9)]);
    assert!(subject.is_local(&[one(), other(8), other(9)]));
    // Two of one state go to the store.
    let twins = [other(10), other(10)];
    assert_eq!(sent(&twins), twins);
    assert_eq!(sent(&twins), twins);
    assert!(subject.is_local(&[other(10)]));
}

#[test]
fn local_usage_postpones_when_a_bucket_is_full_and_not_when_a_window_ends() {
    // A unit of the bucket takes 3 ⅓ ms.
    for (quota, unit) in [
        (Quota::gcra(300, SECOND), 3_334),
        (Quota::fixed_window(300, SECOND), 0),
    ] {
        let subject = Subject::new(quota, EVENTUAL);
        subject.known(fits(200, 500_000), None);
        let reset_after = || subject.decide(&[one()]).verdicts()[0].reset_after_ticks();
        // The reply came a round trip after the query was sent.
        let expected = 500_000 - 2 * WAY;
        let after = [reset_after(), reset_after(), reset_after()];
        assert_eq!(after, [1, 2, 3].map(|units| expected + units * unit));
        // It was full meanwhile.
        subject.advance(700_000);
        assert_eq!(reset_after(), unit);
    }
}

#[test]
fn an_exact_check_of_an_eventual_rule_is_decided_by_the_store_with_what_is_unreported() {
    let subject = Subject::new(Quota::fixed_window(1_000, SECOND), EVENTUAL);
    subject.known(fits(900, 1_000_000), None);
    for _ in 0..3 {
        assert!(subject.is_local(&[one()]));
    }
    let exact = one().with_policy(CheckPolicy::default().exact());
    let query = subject.query(&[exact]);
    let reports: Vec<_> = query.reports.iter().map(Check::cost).collect();
    assert_eq!(reports, [3]);
    drop(subject.finish(query, fits(890, 1_000_000), None));
    assert!(subject.is_local(&[one()]));
}
