//! What is written, and for how long.

use crate::script::call::Call;
use redis::Value;
use tollgate_core::{
    Check, DAY, MINUTE, Outcome, Quota, Rule,
    algorithm::Taken,
    store::{Receipt, Settlement},
};
use tollgate_prefilter::{LeaseQuery, LeaseTerms};
use tollgate_test_servers::redis_client::Integers as _;

use crate::internal_tests::script::{MARGIN, NOW, QUOTAS, Subject, every_algorithm};

#[test]
fn a_state_lives_until_it_equals_a_fresh_one_and_for_the_margin() {
    let mut subject = Subject::new(every_algorithm());
    for rule in 0..QUOTAS.len() as u16 {
        let decision = subject.acquire(NOW, &[Subject::check(rule, 3)]);
        let reset = decision.verdicts()[0].reset_after().as_micros() as u64;
        let px = reset.div_ceil(1_000) + MARGIN.as_millis() as u64;
        assert_eq!(subject.written(), [format!("SET PX {px}")], "{rule}");
    }
}

#[test]
fn within_a_window_the_time_to_live_is_left_as_it_is() {
    let mut subject = Subject::new([
        Rule::new("fixed", Quota::fixed_window(10, DAY)),
        Rule::new("sliding", Quota::sliding_window(10, DAY)),
    ]);
    for rule in 0..2 {
        let take = |subject: &mut Subject| {
            let mut call = Call::new();
            let _ = call.acquire(&subject.encoder, &[Subject::check(rule, 1)]);
            let reply = subject.send(&call).integers();
            (reply[0] as u64 / DAY.as_micros() as u64, subject.written())
        };
        let (day, first) = take(&mut subject);
        let key = subject.key(rule);
        let left = |subject: &mut Subject| subject.connection.command([&b"PTTL"[..], &key]);
        let before = left(&mut subject);
        let (same_day, second) = take(&mut subject);
        let after = left(&mut subject);
        assert!(first[0].starts_with("SET PX "), "{first:?}");
        // This test may run at midnight.
        if day == same_day {
            assert_eq!(second, ["SETRANGE"]);
            let (Value::Int(before), Value::Int(after)) = (before, after) else {
                panic!("{key:?} has a time to live");
            };
            assert!(0 < after && after <= before, "{before}, {after}");
        }
    }
}

#[test]
fn a_denial_a_cost_of_nothing_and_a_peek_write_nothing() {
    let mut subject = Subject::new(every_algorithm());
    for rule in 0..QUOTAS.len() as u16 {
        assert!(
            subject
                .acquire(NOW, &[Subject::check(rule, 0)])
                .is_allowed()
        );
        assert!(
            !subject
                .acquire(NOW, &[Subject::check(rule, 11)])
                .is_allowed()
        );
        assert!(subject.written().is_empty(), "{rule}");
        assert!(
            subject
                .acquire(NOW, &[Subject::check(rule, 8)])
                .is_allowed()
        );
        assert_eq!(subject.written().len(), 1);
        assert!(
            !subject
                .acquire(NOW, &[Subject::check(rule, 3)])
                .is_allowed()
        );
        let mut call = Call::at(NOW, MARGIN);
        let _ = call.peek(&subject.encoder, &[Subject::check(rule, 1)]);
        subject.send(&call);
        assert!(subject.written().is_empty(), "{rule}");
    }
}

#[test]
fn a_denial_after_the_clock_went_back_writes_the_repair() {
    let mut subject = Subject::new(every_algorithm());
    let back = NOW - 3_600_000_000;
    for rule in 0..QUOTAS.len() as u16 {
        assert!(
            subject
                .acquire(NOW, &[Subject::check(rule, 10)])
                .is_allowed()
        );
        subject.written();
        let denied = subject.acquire(back, &[Subject::check(rule, 1)]);
        assert!(!denied.is_allowed());
        let reset = denied.verdicts()[0].reset_after().as_micros() as u64;
        assert!(reset < 3_000_000, "{rule}: {reset}");
        let px = reset.div_ceil(1_000) + MARGIN.as_millis() as u64;
        assert_eq!(subject.written(), [format!("SET PX {px}")], "{rule}");
        // It is in its place: the next denial has nothing to write.
        assert!(
            !subject
                .acquire(back, &[Subject::check(rule, 10)])
                .is_allowed()
        );
        assert!(subject.written().is_empty(), "{rule}");
    }
}

#[test]
fn if_one_rule_denies_none_is_written() {
    let mut subject = Subject::new([
        Rule::new("wide", Quota::gcra(100, MINUTE)),
        Rule::new("narrow", Quota::fixed_window(1, MINUTE)),
    ]);
    let both = [Subject::check(0, 1), Subject::check(1, 1)];
    assert!(subject.acquire(NOW, &both).is_allowed());
    assert_eq!(subject.written().len(), 2);
    let denied = subject.acquire(NOW, &both);
    assert!(!denied.is_allowed());
    assert_eq!(denied.verdicts()[0].outcome(), Outcome::Allow);
    assert_eq!(denied.verdicts()[0].remaining(), 99);
    assert!(subject.written().is_empty());
}

#[test]
fn a_reset_and_a_refund_of_everything_leave_no_state() {
    let mut subject = Subject::new(every_algorithm());
    for rule in 0..QUOTAS.len() as u16 {
        let check: Check = Subject::check(rule, 3);
        let decision = subject.acquire(NOW, &[check]);
        let reset = decision.verdicts()[0].reset_after().as_micros() as u64;
        subject.written();
        let taken = Taken::new(NOW, NOW + reset);
        // Without a margin, so that nothing is kept that is fresh.
        let mut call = Call::at(NOW, std::time::Duration::ZERO);
        assert!(call.settle(
            &subject.encoder,
            &Receipt::of_store(check, taken),
            Settlement::Cancel
        ));
        assert_eq!(subject.send(&call).integers()[1], -1);
        assert_eq!(subject.written(), ["DEL"], "{rule}");

        let _ = subject.acquire(NOW, &[check]);
        subject.written();
        let mut call = Call::new();
        assert!(call.reset(&subject.encoder, rule, check.key()));
        subject.send(&call);
        assert_eq!(subject.written(), ["DEL"], "{rule}");
    }
}

/// Takes a unit and as many as a lease.
fn grant(subject: &mut Subject, now: u64, quota: &Quota, units: u64) {
    let terms = LeaseTerms::new(quota, 800).expect("it is granted");
    let check = Subject::check(0, 1);
    let mut call = Call::at(now, MARGIN);
    let layout = call.acquire(&subject.encoder, &[check]);
    let query = LeaseQuery::default().with_tracked(units);
    let place = call.grant(&subject.encoder, &check, &query, &terms);
    assert!(layout.is_some() && place.is_some());
    let reply = subject.send(&call).integers();
    assert_eq!(reply[4..6], [1, units as i64]);
}

#[test]
fn a_refund_leaves_a_bucket_for_as_long_as_units_of_it_are_on_lease() {
    const LIFE: u64 = 10_000_000;
    let start = NOW - NOW % LIFE;
    // One unit each 10 ms, and each second: units that were taken may outlast the leases.
    for (each, taken) in [(10, 5), (1_000, 505)] {
        let quota = Quota::token_bucket(1_000).refill(1, std::time::Duration::from_millis(each));
        for leases in [[40, 0], [0, 30], [40, 30]] {
            let mut subject = Subject::new([Rule::new("rule", quota)]);
            let mut used = 0;
            for (place, units) in [0, 1].into_iter().zip(leases) {
                if units > 0 {
                    grant(&mut subject, start + place * LIFE, &quota, units);
                    used += (1 + units) * each;
                    // What is on lease does not refill until its generation is over.
                    let passes = (1 - place) * 10_000;
                    used = used.saturating_sub(passes).max(units * each);
                }
            }
            let now = start + LIFE;
            let check = Subject::check(0, 5);
            let most = subject.acquire(now, &[Subject::check(0, taken)]);
            let most = most.verdicts()[0].reset_after().as_micros() as u64;
            subject.written();
            let receipt = Receipt::of_store(check, Taken::new(now, now + most));
            let mut call = Call::at(now, MARGIN);
            assert!(call.settle(&subject.encoder, &receipt, Settlement::Cancel));
            subject.send(&call);
            // A lease may be spent until the generation after its own is over, and its units refill then.
            let over = 20_000 + (leases[0] + leases[1]) * each;
            let refilled = used + (taken - 5) * each;
            let px = over.max(refilled) + MARGIN.as_millis() as u64;
            assert_eq!(
                subject.written(),
                [format!("SET PX {px}")],
                "{each}, {leases:?}"
            );
        }
    }
}

#[test]
fn a_cost_of_nothing_leaves_the_state_of_another_quota_with_its_leases() {
    let small = Quota::gcra(1_000, MINUTE);
    let large = Quota::gcra(2_000, MINUTE);
    let mut subject = Subject::new([Rule::new("rule", small).plan("large", large)]);
    grant(&mut subject, NOW, &small, 20);
    assert_eq!(subject.written().len(), 2);
    let look = subject.acquire(NOW, &[Subject::check(0, 0).with_plan(1)]);
    assert!(look.is_allowed());
    assert!(subject.written().is_empty());
}
