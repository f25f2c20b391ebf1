//! Leases of short windows.

use std::time::Duration;

use tollgate_core::{Check, Consistency, LeaseShare, MINUTE, Quota, Rule, store::Settlement};

use crate::{
    NoReply,
    engine::tests::subject::{AHEAD, KEY, Subject, WAY, done, fits, key, one, receipt, tracked},
};

/// Windows of 50 ms, and in how many of them their units weigh.
fn of_50_ms() -> [(Quota, u64); 2] {
    let window = Duration::from_millis(50);
    [
        (Quota::fixed_window(1_000, window), 1),
        (Quota::sliding_window(1_000, window), 2),
    ]
}

/// Two rules, the first with leases of windows of 50 ms, and a lease that was granted just now.
fn leased_in_short_windows(quota: Quota) -> (Subject, u64) {
    let leased = Consistency::Leased {
        share: LeaseShare::percent(50),
    };
    let subject = Subject::of([
        Rule::new("rule", quota).consistency(leased),
        Rule::new("other", Quota::gcra(1, MINUTE)),
    ]);
    let check = [one()];
    // Often enough for a lease.
    for _ in 0..40 {
        let _ = subject.decided(&check, fits(999, 40_000));
    }
    // So that the reply comes at the start of a window.
    let at = subject.now() + AHEAD + WAY;
    subject.advance(50_000 - at % 50_000);
    let window = (subject.now() + AHEAD + WAY) / 50_000;
    let query = subject.query(&check);
    assert!(query.leases()[0].query.requests_grant());
    drop(subject.finish(query, fits(999, 40_000), tracked(10, window)));
    (subject, window)
}

#[test]
fn units_of_a_short_window_are_known_by_it_however_long_the_other_rules_take() {
    for (quota, weighs) in of_50_ms() {
        // Also where the store does not reply at all.
        for (passed, is_answered) in [(1_000, true), (45_000, true), (45_000, false)] {
            let (subject, window) = leased_in_short_windows(quota);
            let checks = [one(), Check::new(1, KEY, 1)];
            let query = subject.query(&checks);
            assert_eq!(query.checks(), [checks[1]]);
            subject.advance(passed);
            let done = match is_answered {
                true => {
                    let reply = subject.reply(&query, fits(0, 60_000_000), None);
                    done(query.finish(Ok(reply), subject.now()))
                }
                false => done(query.finish(Err(NoReply::Unknown), subject.now())),
            };
            assert!(done.follow_up.is_empty());
            let spent = receipt(one(), &done.decision);
            let until = (window + weighs) * 50_000;
            assert!(spent.taken.fresh_at.abs_diff(until) <= 2 * WAY, "{quota:?}");
            // Into the lease, which has not run out.
            assert_eq!(subject.engine.usage(subject.now()).units_on_lease, 9);
            assert_eq!(subject.settle(spent, Settlement::Cancel), []);
            assert_eq!(subject.engine.usage(subject.now()).units_on_lease, 10);
        }
    }
}

#[test]
fn units_of_a_window_without_a_lease_are_refunded_as_the_store_has_counted_them() {
    for (quota, weighs) in of_50_ms() {
        let (subject, window) = leased_in_short_windows(quota);
        let check = one().with_cost(3);
        let spent = receipt(check, &subject.decide(&[check]));
        // The lease has run out, or nothing is kept of the key.
        let mut of_another = spent;
        of_another.check = Check::new(0, key(8), 3);
        for (passed, spent) in [(0, of_another), (49_999, spent), (60_000_000, spent)] {
            subject.advance(passed);
            let settled = subject.settle(spent, Settlement::Refund(2));
            let [(receipt, Settlement::Refund(2))] = settled[..] else {
                panic!("there is no lease: {settled:?}");
            };
            assert_eq!(receipt.taken.fresh_at, (window + weighs) * 50_000);
        }
    }
}
