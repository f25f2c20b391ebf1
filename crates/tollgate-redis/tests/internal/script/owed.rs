//! Reports of more units than a quota has: what is counted beyond it.

use std::time::Duration;

use crate::script::call::Call;
use redis::Value;
use tollgate_core::{DAY, Outcome, Quota, Rule, SECOND};

use crate::internal_tests::script::{MARGIN, NOW, Subject};

fn subject(quota: Quota) -> Subject {
    Subject::new([Rule::new("rule", quota)])
}

/// So many units were let through, whether they were left or not.
fn report(subject: &mut Subject, units: u64) {
    report_at(subject, NOW, units);
}

fn report_at(subject: &mut Subject, now: u64, units: u64) {
    let mut call = Call::at(now, MARGIN);
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
fn a_bucket_that_owes_centuries_is_still_a_state() {
    let mut subject = subject(Quota::token_bucket(1_000).refill(1, DAY));
    for _ in 0..200 {
        report(&mut subject, 1_000);
    }
    let decision = subject.acquire(NOW, &[Subject::check(0, 1)]);
    assert_eq!(decision.outcome(), Outcome::Deny);
    let wait = decision.retry().delay().expect("the denial says when");
    assert!(wait > 100 * 365 * DAY, "{wait:?}");
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
fn a_report_under_a_small_plan_leaves_what_was_used_under_a_large_one() {
    let small = Quota::token_bucket(10).refill(1, SECOND);
    let large = Quota::token_bucket(1_000).refill(1, SECOND);
    let mut subject = Subject::new([Rule::new("rule", small).plan("large", large)]);
    let of_large = |cost| Subject::check(0, cost).with_plan(1);
    assert!(subject.acquire(NOW, &[of_large(900)]).is_allowed());
    report(&mut subject, 3);
    assert!(!subject.acquire(NOW, &[Subject::check(0, 1)]).is_allowed());
    assert!(!subject.acquire(NOW, &[of_large(98)]).is_allowed());
    assert!(subject.acquire(NOW, &[of_large(97)]).is_allowed());
}

#[test]
fn what_is_owed_beyond_a_small_burst_stays_owed_under_a_larger_one() {
    let small = Quota::token_bucket(100).refill(100, SECOND);
    let large = Quota::token_bucket(200).refill(100, SECOND);
    let mut subject = Subject::new([Rule::new("rule", small).plan("large", large)]);
    report(&mut subject, 100);
    report(&mut subject, 40);
    let of_large = |cost| Subject::check(0, cost).with_plan(1);
    assert!(!subject.acquire(NOW, &[of_large(61)]).is_allowed());
    assert!(subject.acquire(NOW, &[of_large(60)]).is_allowed());
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
