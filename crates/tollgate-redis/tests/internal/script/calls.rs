//! What one call carries.

use crate::script::{call::Call, reply::Reply, text};
use redis::Value;
use tollgate_core::{Check, MINUTE, Quota, Rule, store::Fingerprint};
use tollgate_test_servers::redis_client::Integers as _;

use crate::internal_tests::script::Subject;

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
