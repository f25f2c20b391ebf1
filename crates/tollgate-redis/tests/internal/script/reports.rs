//! Reports beside requests in one call.

use crate::script::{call::Call, reply::Reply};
use tollgate_core::{Quota, Rule, SECOND};
use tollgate_test_servers::redis_client::Integers as _;

use crate::internal_tests::script::{MARGIN, NOW, QUOTAS, Subject};

/// Every algorithm that can be told of more than its limit.
fn quotas() -> impl Iterator<Item = Quota> {
    let log = Quota::sliding_log(10, SECOND);
    QUOTAS.into_iter().filter(move |quota| *quota != log)
}

#[test]
fn a_request_is_decided_after_the_reports_before_it_in_its_call_and_before_those_behind_it() {
    for quota in quotas() {
        let mut subject = Subject::new([Rule::new("api", quota)]);
        let check = |cost| Subject::check(0, cost);
        let mut call = Call::at(NOW, MARGIN);
        let reports = |call: &mut Call, subject: &Subject, units| {
            let place = call.debit(&subject.encoder, &check(units));
            place.expect("there is room")
        };
        let first = reports(&mut call, &subject, 3);
        let second = reports(&mut call, &subject, 1);
        let request = |call: &mut Call, subject: &Subject, cost| {
            let layout = call.acquire(&subject.encoder, &[check(cost)]);
            layout.expect("there is room")
        };
        let fits = request(&mut call, &subject, 6);
        let denied = request(&mut call, &subject, 1);
        // It was admitted already, whatever is left.
        let above = reports(&mut call, &subject, 2);
        let look = call.peek(&subject.encoder, &[check(0)]);
        let look = look.expect("there is room");

        let reply = subject.send(&call).integers();
        let reply = Reply::new(call.checks(), reply).expect("a whole reply");
        let left = [first, second, above].map(|place| reply.left(place));
        assert_eq!(left, [Some(7), Some(6), Some(0)], "{quota:?}");
        let decided = [(&fits, 6), (&denied, 1), (&look, 0)].map(|(layout, cost)| {
            let decision = reply.decision(layout, &[check(cost)], &subject.rules);
            (decision.is_allowed(), decision.verdicts()[0].remaining())
        });
        assert_eq!(decided, [(true, 0), (false, 0), (true, 0)], "{quota:?}");
    }
}
