//! Leases.

use tollgate_core::{
    Check, MINUTE, Outcome, Quota, Retry, Source, store::Settlement, types::CheckPolicy,
};

use crate::{
    Grant, NoReply,
    engine::tests::subject::{
        LEASED, Subject, WAY, denied, done, fits, key, leased_bucket, one, receipt, tracked,
    },
};

#[test]
fn a_process_with_a_scheduled_lease_does_not_ask_and_says_when_its_units_are_due() {
    let scheduled = Grant::Scheduled {
        units: 8,
        after: 500_000,
    };
    let subject = leased_bucket(Some(scheduled));
    // The bucket is overdrawn by the lease.
    let _ = subject.decided(&[one()], denied(60_600_000, 610_000));
    let decision = subject.decide(&[one()]);
    // A thousandth later than by the store's clock.
    let due = 500_500 + 10_010 - 2 * WAY;
    assert_eq!(decision.retry(), Retry::after_micros(due));
    let usage = subject.engine.usage(subject.now());
    let keys = (usage.scheduled_keys, usage.leased_keys, usage.keys);
    assert_eq!((keys, usage.units_on_lease), ((1, 0, 1), 8));
    subject.advance(due);
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
fn while_a_query_for_a_lease_has_no_reply_no_other_asks_for_one() {
    for quota in [
        Quota::fixed_window(6_000, MINUTE),
        Quota::gcra(6_000, MINUTE),
    ] {
        let subject = Subject::new(quota, LEASED);
        subject.known(fits(5_000, 500_000), None);
        // Busy enough for a lease.
        let mut query = subject.query(&[one()]);
        for _ in 0..100 {
            if !query.leases.is_empty() {
                break;
            }
            drop(subject.finish(query, fits(5_000, 500_000), None));
            query = subject.query(&[one()]);
        }
        let before = subject.query(&[one()]);
        assert_eq!((query.leases.len(), before.leases.len()), (1, 0));
        subject.advance(50_000);
        drop(done(query.finish(Err(NoReply::NoAnswer), subject.now())));
        // The store stands still, and may carry it out later. What was sent at the same time says nothing about that.
        drop(subject.finish(before, fits(5_000, 500_000), None));
        for _ in 0..10 {
            subject.advance(50_000);
            let query = subject.query(&[one()]);
            assert!(query.leases.is_empty(), "{quota:?}");
            drop(done(query.finish(Err(NoReply::NoAnswer), subject.now())));
        }
        // It goes on.
        drop(subject.decided(&[one()], fits(5_000, 500_000)));
        assert_eq!(subject.query(&[one()]).leases.len(), 1, "{quota:?}");
    }
}

/// A check that the store decides, whatever the rule's consistency.
fn exact() -> Check {
    one().with_policy(CheckPolicy::default().exact())
}

#[test]
fn an_exact_check_of_a_leased_rule_is_decided_by_the_store_and_leaves_the_lease_alone() {
    let subject = leased_bucket(tracked(10, 7));
    let held = || subject.engine.usage(subject.now()).units_on_lease;
    for _ in 0..3 {
        let query = subject.query(&[exact()]);
        assert!(query.leases.is_empty());
        let decision = subject.finish(query, fits(4_000, 500_000), None).decision;
        assert_eq!(decision.verdicts()[0].source(), Source::Store);
        assert_eq!(held(), 10);
        // And what a ticket gives back or takes on top goes to the store.
        let taken = receipt(exact(), &decision);
        for how in [Settlement::Cancel, Settlement::Charge(2)] {
            assert_eq!(subject.settle(taken, how).len(), 1);
        }
        assert_eq!(held(), 10);
    }
    assert_eq!(
        subject.decide(&[one()]).verdicts()[0].source(),
        Source::Lease
    );
}

#[test]
fn a_denied_exact_check_is_denied_again_without_a_query_although_there_is_a_lease() {
    let subject = leased_bucket(tracked(10, 7));
    assert!(
        !subject
            .decided(&[exact()], denied(60_000_000, 10_000))
            .is_allowed()
    );
    let other = Check::new(0, key(8), 1);
    for checks in [&[exact()][..], &[exact(), other]] {
        let decision = subject.decide(checks);
        assert_eq!(decision.verdicts()[0].source(), Source::DenyCache);
        assert!(!decision.is_allowed());
    }
    assert!(subject.decide(&[one()]).is_allowed());
    // The units of a scheduled lease are not for it, and it does not wait for them.
    let scheduled = Grant::Scheduled {
        units: 8,
        after: 500_000,
    };
    let subject = leased_bucket(Some(scheduled));
    let _ = subject.decided(&[exact()], denied(60_600_000, 610_000));
    let retry = |check| subject.decide(&[check]).retry();
    assert_ne!(retry(exact()), retry(one()));
}
