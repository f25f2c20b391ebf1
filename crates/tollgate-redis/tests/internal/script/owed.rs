//! Reports of more units than a quota has: what is counted beyond it.

use std::time::Duration;

use crate::script::args::ScriptCall;
use redis::Value;
use tollgate_core::{Outcome, Quota, Rule, SECOND};

use crate::internal_tests::script::{MARGIN, NOW, Subject};

fn subject(quota: Quota) -> Subject {
    Subject::new([Rule::new("rule", quota)])
}

/// So many units were let through, whether they were left or not.
fn report(subject: &mut Subject, units: u64) {
    report_at(subject, NOW, units);
}

fn report_at(subject: &mut Subject, now: u64, units: u64) {
    let mut call = ScriptCall::at(now, MARGIN);
    let place = call.debit(&subject.encoder, &Subject::check(0, units));
    assert!(place.is_some());
    let reply = subject.send(&call);
    assert!(matches!(reply, Value::Array(_)), "{reply:?}");
}

#[test]
fn a_bucket_owes_more_units_than_a_number_of_32_bits_holds() {
    // A hundred gigabytes at once, one a second.
    let burst = 100_000_000_000;
    let mut subject = subject(Quota::token_bucket(burst).refill(1_000_000_000, SECOND));
    for units in [burst, burst, burst / 2] {
        report(&mut subject, units);
    }
    // A denial repairs what a clock that went back has left, and nothing else.
    for _ in 0..2 {
        let decision = subject.acquire(NOW, &[Subject::check(0, 1)]);
        assert_eq!(decision.outcome(), Outcome::Deny);
        let wait = decision.retry().delay().expect("the denial says when");
        assert_eq!(wait, Duration::from_secs(150) + Duration::from_micros(1));
    }
}

#[test]
fn a_window_that_counts_in_32_bits_stays_full() {
    let most = u64::from(u32::MAX);
    for quota in [
        Quota::sliding_window(most, SECOND),
        Quota::sliding_buckets(most, SECOND),
    ] {
        let mut subject = subject(quota);
        for _ in 0..3 {
            report(&mut subject, most - 1_000);
        }
        for later in [0, 1_000] {
            let decision = subject.acquire(NOW + later, &[Subject::check(0, 1)]);
            assert_eq!(decision.outcome(), Outcome::Deny, "{quota:?}");
        }
        // And is as empty as any once that is over.
        let decision = subject.acquire(NOW + 3_000_000, &[Subject::check(0, 1)]);
        assert_eq!(decision.verdicts()[0].remaining(), most - 1, "{quota:?}");
    }
}

#[test]
fn a_denial_keeps_each_part_of_a_microsecond_that_a_bucket_owes() {
    // A unit takes 10/7 µs.
    let burst = 100;
    let mut subject = subject(Quota::token_bucket(burst).refill(700_000, SECOND));
    for (beyond, later) in (1..20).flat_map(|beyond| (0..3).map(move |later| (beyond, later))) {
        subject.connection.say("FLUSHALL");
        report(&mut subject, burst);
        report_at(&mut subject, NOW + later, beyond + 2);
        let wait = ((beyond + 3) * 10 - later * 7).div_ceil(7);
        for _ in 0..2 {
            let decision = subject.acquire(NOW + later, &[Subject::check(0, 1)]);
            let delay = decision.retry().delay();
            assert_eq!(
                delay,
                Some(Duration::from_micros(wait)),
                "{beyond}, {later}"
            );
        }
    }
}

#[test]
fn a_bucket_that_has_paid_back_is_one_that_never_owed() {
    let mut subject = subject(Quota::token_bucket(100).refill(100, SECOND));
    report(&mut subject, 100);
    report(&mut subject, 40);
    let take = |subject: &mut Subject, now| subject.acquire(now, &[Subject::check(0, 1)]);
    assert!(!take(&mut subject, NOW).is_allowed());
    assert!(take(&mut subject, NOW + 1_000_000).is_allowed());
    let key = subject.key(0);
    let length = subject.connection.command([&b"STRLEN"[..], &key]);
    assert_eq!(length, Value::Int(33));
    // After a clock that went back, no more is used than fits.
    let denied = take(&mut subject, NOW - 10_000_000);
    let wait = denied.retry().delay().expect("the denial says when");
    assert_eq!(wait, Duration::from_millis(10));
}
