//! What one call carries.

use crate::script::{call::Call, reply::Reply, text};
use redis::Value;
use tollgate_core::{
    Check, MINUTE, Quota, Rule, RuleSet,
    algorithm::Taken,
    store::{Fingerprint, Receipt, Settlement},
};
use tollgate_prefilter::{LeaseQuery, LeaseTerms, ReturnedLease};
use tollgate_test_servers::redis_client::Integers as _;

use crate::{
    internal_tests::script::Subject,
    keys::keyspace::{Keyspace, Partition},
    script::encoder::Encoder,
};

#[test]
fn the_time_is_that_of_the_server() {
    let mut subject = Subject::new([Rule::new("api", Quota::gcra(2, MINUTE))]);
    let time = |subject: &mut Subject| match subject.connection.say("TIME") {
        Value::Array(parts) => parts.iter().fold(0, |sum, part| match part {
            Value::BulkString(digits) => {
                let digits = str::from_utf8(digits).expect("digits");
                sum * 1_000_000 + digits.parse::<u64>().expect("digits")
            }
            other => panic!("{other:?} is no time"),
        }),
        other => panic!("{other:?} is no time"),
    };
    let mut call = Call::new();
    let _ = call.acquire(&subject.encoder, &[Subject::check(0, 1)]);
    let before = time(&mut subject);
    let reply = subject.send(&call).integers();
    let after = time(&mut subject);
    let reply = Reply::new(call.checks(), reply).expect("a whole reply");
    assert!((before..=after).contains(&reply.at()));
}

#[test]
fn a_server_that_does_not_know_the_script_has_done_nothing() {
    let mut subject = Subject::new([Rule::new("api", Quota::gcra(2, MINUTE))]);
    let key = subject.key(0);
    let mut call = Call::new();
    let _ = call.acquire(&subject.encoder, &[Subject::check(0, 1)]);
    let head = [&b"EVALSHA"[..], text::SCRIPT.sha(), b"1"];
    let by_hash: Vec<&[u8]> = head
        .into_iter()
        .chain(call.keys())
        .chain(call.args())
        .collect();
    let Value::ServerError(error) = subject.connection.command(by_hash.iter().copied()) else {
        panic!("it never got the script");
    };
    assert_eq!(error.code(), "NOSCRIPT");
    assert_eq!(
        subject.connection.command([&b"EXISTS"[..], &key]),
        Value::Int(0)
    );
    // The text teaches it and decides at once; from then on the hash will do.
    assert_eq!(subject.send(&call).integers()[1..3], [-1, 1]);
    let last = subject.connection.command(by_hash).integers();
    assert!(last[1] < -4 && last[2] == 0, "{last:?}");
}

#[test]
fn many_requests_fit_into_one_call() {
    let mut subject = Subject::new([Rule::new("api", Quota::gcra(2, MINUTE))]);
    let mut call = Call::new();
    for who in 0..1_000 {
        let check = Check::new(0, Fingerprint::from_bits(who), 1);
        assert!(call.acquire(&subject.encoder, &[check]).is_some());
    }
    let reply = subject.send(&call).integers();
    assert_eq!(reply.len(), 3_001);
    assert!(reply[1..].chunks(3).all(|answer| answer[..2] == [-1, 1]));
}

type Operation = fn(&mut Call, &Encoder) -> bool;

const QUOTA: Quota = Quota::gcra(100, MINUTE);

/// Each adds itself to a call, if there is room.
const OPERATIONS: [Operation; 7] = [
    |call, encoder| call.acquire(encoder, &[Subject::check(0, 1)]).is_some(),
    |call, encoder| call.peek(encoder, &[Subject::check(0, 1)]).is_some(),
    |call, encoder| {
        let receipt = Receipt::of_store(Subject::check(0, 1), Taken::new(1, 2));
        call.settle(encoder, &receipt, Settlement::Cancel)
    },
    |call, encoder| call.reset(encoder, 0, Subject::check(0, 1).key()),
    |call, encoder| {
        let returned = ReturnedLease {
            size: 2,
            left: 1,
            generation: 7,
        };
        let place = call.close(encoder, &Subject::check(0, 1), returned);
        place.is_some()
    },
    |call, encoder| {
        let terms = LeaseTerms::new(&QUOTA, 500).expect("it is granted");
        let query = LeaseQuery::default().with_tracked(2);
        let place = call.grant(encoder, &Subject::check(0, 1), &query, &terms);
        place.is_some()
    },
    |call, encoder| call.debit(encoder, &Subject::check(0, 1)).is_some(),
];

fn encoder() -> Encoder {
    let rules = RuleSet::new([Rule::new("api", QUOTA)]).expect("a valid rule");
    let keyspace = Keyspace::new("tg", Partition::Key).expect("letters");
    Encoder::new(&rules, keyspace).expect("no plans")
}

#[test]
fn a_call_that_is_full_takes_no_operation_and_stays_as_it_is() {
    let (encoder, mut call) = (encoder(), Call::new());
    for _ in 0..65_534 {
        assert!(call.debit(&encoder, &Subject::check(0, 1)).is_some());
    }
    for (place, operation) in OPERATIONS.into_iter().enumerate() {
        assert!(!operation(&mut call, &encoder), "{place}");
        assert_eq!(call.checks(), 65_534, "{place}");
    }
}

#[test]
fn a_call_knows_the_rules_of_every_operation() {
    let encoder = encoder();
    let mut first = Call::new();
    assert_eq!(first.rules(), 0);
    assert!(OPERATIONS[0](&mut first, &encoder));
    assert_eq!(first.rules().count_ones(), 1);
    for (place, operation) in OPERATIONS.into_iter().enumerate() {
        let mut call = Call::new();
        assert!(operation(&mut call, &encoder), "{place}");
        assert_eq!(call.rules(), first.rules(), "{place}");
    }
}
