//! A check that fails beside others.

use tollgate_core::Outcome;

use crate::internal_tests::script::{NOW, Subject, every_algorithm};

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
