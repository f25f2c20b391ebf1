//! What is written, and for how long.

use crate::script::args::ScriptCall;
use redis::Value;
use tollgate_core::{DAY, Quota, Rule};
use tollgate_test_servers::redis_client::Integers as _;

use crate::internal_tests::script::{MARGIN, NOW, QUOTAS, Subject, every_algorithm};

#[test]
fn within_a_window_the_time_to_live_is_left_as_it_is() {
    let mut subject = Subject::new([
        Rule::new("fixed", Quota::fixed_window(10, DAY)),
        Rule::new("sliding", Quota::sliding_window(10, DAY)),
    ]);
    for rule in 0..2 {
        let take = |subject: &mut Subject| {
            let mut call = ScriptCall::new();
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
        let mut call = ScriptCall::at(NOW, MARGIN);
        let _ = call.peek(&subject.encoder, &[Subject::check(rule, 1)]);
        subject.send(&call);
        assert!(subject.written().is_empty(), "{rule}");
    }
}
