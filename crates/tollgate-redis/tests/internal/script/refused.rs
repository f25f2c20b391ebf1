//! Commands that the server refuses to one check.

use crate::script::{call::Call, refusal::Refusal, reply::Reply};
use tollgate_core::{Check, Outcome, store::Fingerprint};
use tollgate_test_servers::redis_client::Integers as _;

use crate::internal_tests::script::{MARGIN, NOW, Subject, every_algorithm};

/// A check of a client that nothing is known of.
fn of_another(rule: u16, cost: u64) -> Check {
    Check::new(rule, Fingerprint::from_bits(8), cost)
}

impl Subject {
    fn reply(&mut self, call: &Call) -> Reply {
        let integers = self.send(call).integers();
        Reply::new(call.checks(), integers).expect("a whole reply")
    }
}

#[test]
fn a_command_that_the_user_lacks_fails_the_checks_that_need_it() {
    let mut subject = Subject::new(every_algorithm());
    subject.connection.say("ACL SETUSER default -del");
    let mut call = Call::at(NOW, MARGIN);
    assert!(
        call.acquire(&subject.encoder, &[of_another(0, 1)])
            .is_some()
    );
    assert!(call.reset(&subject.encoder, 1, of_another(1, 0).key()));
    assert!(
        call.acquire(&subject.encoder, &[of_another(2, 1)])
            .is_some()
    );
    let reply = subject.reply(&call);
    let refusals = [0, 1, 2].map(|place| reply.refusal(place));
    assert_eq!(refusals, [None, Some(Refusal::NoPermission), None]);
    subject.connection.say("ACL SETUSER default +del -get");
    let mut call = Call::at(NOW, MARGIN);
    assert!(
        call.acquire(&subject.encoder, &[of_another(0, 1)])
            .is_some()
    );
    assert_eq!(subject.reply(&call).refusal(0), Some(Refusal::NoPermission));
}

/// Of the first rule the key holds another type: nothing is known of it, and the others are decided without it.
#[test]
fn a_denial_takes_nothing_although_another_check_of_the_request_has_failed() {
    for broken in [0, 1, 2] {
        let mut subject = Subject::new(every_algorithm().take(3));
        let [first, denies] = match broken {
            0 => [1, 2],
            1 => [0, 2],
            _ => [0, 1],
        };
        let key = subject.key(broken);
        subject.connection.command([&b"RPUSH"[..], &key, b"theirs"]);
        assert!(
            subject
                .acquire(NOW, &[Subject::check(denies, 10)])
                .is_allowed()
        );
        let checks = [0, 1, 2].map(|rule| Subject::check(rule, 1));
        let decision = subject.acquire(NOW, &checks);
        assert_eq!(decision.outcome(), Outcome::Deny, "{broken}");
        let looked = subject.acquire(NOW, &[Subject::check(first, 0)]);
        assert_eq!(looked.verdicts()[0].remaining(), 10, "{broken}");
        // And what a denied request would have left is told as it is.
        let reported = decision.verdicts()[usize::from(first)];
        assert_eq!(
            (reported.outcome(), reported.remaining()),
            (Outcome::Allow, 10)
        );
    }
}
