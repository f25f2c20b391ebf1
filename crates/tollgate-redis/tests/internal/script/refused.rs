//! Commands that the server refuses to one check.

use crate::script::{call::Call, refusal::Refusal, reply::Reply};
use redis::Value;
use tollgate_core::{Check, Outcome, Quota, Rule, SECOND, store::Fingerprint};
use tollgate_prefilter::{LeaseQuery, LeaseTerms};
use tollgate_test_servers::redis_client::Integers as _;

use crate::internal_tests::script::{MARGIN, NOW, QUOTAS, Subject, every_algorithm};

/// A check of a client that nothing is known of.
fn of_another(rule: u16, cost: u64) -> Check {
    Check::new(rule, Fingerprint::from_bits(8), cost)
}

impl Subject {
    fn reply(&mut self, call: &Call) -> Reply {
        let integers = self.send(call).integers();
        Reply::new(call.checks(), integers).expect("a whole reply")
    }

    /// What becomes of a denial, two takes that are refused, and a look, in one call.
    fn is_isolated(&mut self, rule: u16, refusal: Refusal) {
        let requests = [
            Self::check(rule, 1),
            of_another(rule, 1),
            of_another(rule, 2),
            of_another(rule, 0),
        ];
        let mut call = Call::at(NOW, MARGIN);
        let layout: Vec<_> = requests
            .iter()
            .map(|check| {
                let layout = call.acquire(&self.encoder, &[*check]);
                layout.expect("there is room")
            })
            .collect();
        let reply = self.reply(&call);
        let refusals = [0, 1, 2, 3].map(|place| reply.refusal(place));
        assert_eq!(refusals, [None, Some(refusal), Some(refusal), None]);
        assert_eq!(reply.first_refusal(), Some(refusal));
        let outcomes: Vec<_> = requests
            .iter()
            .zip(&layout)
            .map(|(check, layout)| reply.decision(layout, &[*check], &self.rules).outcome())
            .collect();
        use Outcome::{Allow, Deny, Failed};
        assert_eq!(outcomes, [Deny, Failed, Failed, Allow], "{rule}");
    }
}

#[test]
fn without_memory_takes_are_refused_one_by_one_and_all_else_is_answered() {
    let mut subject = Subject::new(every_algorithm());
    for rule in 0..QUOTAS.len() as u16 {
        assert!(
            subject
                .acquire(NOW, &[Subject::check(rule, 10)])
                .is_allowed()
        );
    }
    subject
        .connection
        .say("CONFIG SET maxmemory-policy noeviction");
    subject.connection.say("CONFIG SET maxmemory 1");
    for rule in 0..QUOTAS.len() as u16 {
        subject.is_isolated(rule, Refusal::OutOfMemory);
    }
    subject.connection.say("CONFIG SET maxmemory 0");
    for rule in 0..QUOTAS.len() as u16 {
        // Nothing was taken.
        assert!(subject.acquire(NOW, &[of_another(rule, 10)]).is_allowed());
    }
}

#[test]
fn without_replicas_takes_are_refused_one_by_one() {
    let mut subject = Subject::new(every_algorithm());
    assert!(subject.acquire(NOW, &[Subject::check(0, 10)]).is_allowed());
    subject.connection.say("CONFIG SET min-replicas-to-write 1");
    subject.is_isolated(0, Refusal::TooFewReplicas);
}

#[test]
fn a_command_that_the_user_lacks_fails_the_checks_that_need_it() {
    let mut subject = Subject::new(every_algorithm());
    assert!(subject.acquire(NOW, &[Subject::check(0, 10)]).is_allowed());
    subject.connection.say("ACL SETUSER default -set");
    subject.is_isolated(0, Refusal::NoPermission);
    subject.connection.say("ACL SETUSER default +set -del");
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

#[test]
fn a_request_of_several_rules_is_refused_check_by_check_and_grants_nothing() {
    let quota = Quota::gcra(1_000, SECOND);
    let mut subject = Subject::new(["one", "other"].map(|name| Rule::new(name, quota)));
    let checks = [Subject::check(0, 1), Subject::check(1, 1)];
    assert!(subject.acquire(NOW, &checks).is_allowed());
    let terms = LeaseTerms::new(&quota, 100).expect("it is large enough");
    for together in [&checks[..], &checks[..1]] {
        subject.connection.say("CONFIG SET maxmemory 1");
        let mut call = Call::at(NOW, MARGIN);
        let layout = call.acquire(&subject.encoder, together).expect("room");
        let query = LeaseQuery::default().with_tracked(50);
        let granted = call.grant(&subject.encoder, &together[0], &query, &terms);
        let reply = subject.reply(&call);
        let decision = reply.decision(&layout, together, &subject.rules);
        for verdict in decision.verdicts() {
            assert_eq!(verdict.outcome(), Outcome::Failed);
        }
        // Nothing is granted to a request that was not granted; not even asked of the server.
        assert_eq!(reply.grant(granted.expect("room")), Some(None));
        subject.connection.say("CONFIG SET maxmemory 0");
        for check in together {
            let looked = subject.acquire(NOW, &[check.with_cost(0)]);
            assert_eq!(looked.verdicts()[0].remaining(), 999);
        }
    }
}

#[test]
fn a_replica_refuses_the_call() {
    let mut subject = Subject::new(every_algorithm());
    subject.connection.say("REPLICAOF 127.0.0.1 1");
    let mut call = Call::at(NOW, MARGIN);
    for rule in [0, 1] {
        assert!(
            call.acquire(&subject.encoder, &[of_another(rule, 1)])
                .is_some()
        );
    }
    let Value::ServerError(error) = subject.send(&call) else {
        panic!("a replica writes nothing");
    };
    // Older servers wrap it in an error of the script.
    let line = format!("{} {}", error.code(), error.details().unwrap_or_default());
    assert!(line.contains("READONLY"), "{line}");
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
