//! Leases.

use tollgate_core::{Consistency, LeaseShare, MINUTE, Outcome, Quota, Retry};

use crate::{
    Grant, NoReply,
    engine::tests::subject::{AHEAD, Subject, done, fits, leased_bucket, one, tracked},
};

#[test]
fn a_lease_is_not_spent_after_it_has_run_out() {
    let subject = leased_bucket(tracked(10, 7));
    assert!(subject.is_local(&[one()]));
    subject.advance(20_000_000);
    assert!(!subject.is_local(&[one()]));
}

#[test]
fn a_process_with_a_scheduled_lease_does_not_ask_and_says_when_its_units_are_due() {
    let scheduled = Grant::Scheduled {
        units: 8,
        after: 500_000,
    };
    let subject = leased_bucket(Some(scheduled));
    let decision = subject.decide(&[one()]);
    // A thousandth later than by the store's clock.
    assert_eq!(decision.retry(), Retry::after_micros(500_500 + 10_010));
    subject.advance(510_510);
    for outcome in [Outcome::Allow, Outcome::Deny] {
        assert_eq!(subject.decide(&[one()]).outcome(), outcome);
    }
    // All of the scheduled lease is there, and as much again has been refilled.
    subject.advance(200_000);
    for _ in 0..7 {
        assert!(subject.is_local(&[one()]));
    }
    assert!(!subject.is_local(&[one()]));
}

#[test]
fn a_lease_whose_query_certainly_did_not_run_is_here_again() {
    for quota in [
        Quota::fixed_window(1_000, MINUTE),
        Quota::gcra(1_000, MINUTE),
    ] {
        let leased = Consistency::Leased {
            share: LeaseShare::percent(50),
        };
        let subject = Subject::new(quota, leased);
        let generation = (subject.now() + AHEAD) / 60_000_000;
        subject.known(fits(900, 500_000), tracked(10, generation));
        let held = || subject.engine.units_on_lease(subject.now());
        for why in [NoReply::NotRun, NoReply::NothingToSend] {
            let query = subject.query(&[one().with_cost(20)]);
            assert_eq!(held(), 0);
            drop(done(query.finish(Err(why), subject.now())));
            assert_eq!(held(), 10);
        }
        // A query without a known outcome is another matter.
        drop(subject.query(&[one().with_cost(20)]));
        assert_eq!(held(), 0);
    }
}
