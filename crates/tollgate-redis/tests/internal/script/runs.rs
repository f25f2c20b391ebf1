//! A check that repeats for the next keys.

use crate::script::{args::ScriptCall, encoder::Encoder};
use redis::Value;
use tollgate_core::{Check, store::Fingerprint};
use tollgate_test_servers::redis_client::Integers as _;

use crate::internal_tests::{
    script::{MARGIN, NOW, QUOTAS, Subject, every_algorithm},
    scripted::run_with,
};

/// The clients of a run: fresh, with usage, with no units left, with a value that is no state, and fresh again.
const CLIENTS: u64 = 5;

fn check(rule: u16, client: u64, cost: u64) -> Check {
    Check::new(rule, Fingerprint::from_bits(client.into()), cost)
}

/// A request for each client, in one call.
fn requests(encoder: &Encoder, mut call: ScriptCall, rule: u16, peeks: bool) -> ScriptCall {
    for client in 0..CLIENTS {
        let check = [check(rule, client, 1)];
        let layout = if peeks {
            call.peek(encoder, &check)
        } else {
            call.acquire(encoder, &check)
        };
        assert!(layout.is_some());
    }
    call
}

/// The answer to the first request of a call, with how often it repeats.
fn repeated(subject: &mut Subject, call: &ScriptCall) -> Vec<i64> {
    let repeats = u16::try_from(call.checks() - 1).expect("few").to_le_bytes();
    let args = call.args().take(2).chain([&repeats[..]]);
    run_with(&mut subject.connection, call.keys(), args).integers()
}

/// Each state, with whether it has a time to live.
fn states(subject: &mut Subject, call: &ScriptCall) -> Vec<(Value, bool)> {
    let keys: Vec<_> = call.keys().map(<[u8]>::to_vec).collect();
    let each = keys.iter().map(|key| {
        let state = subject.connection.command([&b"GET"[..], key]);
        let left = subject.connection.command([&b"PTTL"[..], key]);
        (state, matches!(left, Value::Int(left) if left > 0))
    });
    each.collect()
}

#[test]
fn a_check_that_repeats_is_decided_as_if_it_were_written_for_each_key() {
    for peeks in [false, true] {
        for rule in 0..QUOTAS.len() as u16 {
            let mut sides = [(); 2].map(|()| {
                let mut subject = Subject::new(every_algorithm());
                for (client, cost) in [(1, 3), (2, 10)] {
                    assert!(
                        subject
                            .acquire(NOW, &[check(rule, client, cost)])
                            .is_allowed()
                    );
                }
                let call = requests(&subject.encoder, ScriptCall::at(NOW, MARGIN), rule, peeks);
                let foreign = call.keys().nth(3).expect("five keys").to_vec();
                subject
                    .connection
                    .command([&b"RPUSH"[..], &foreign, b"value"]);
                (subject, call)
            });
            let [(whole, call), (run, _)] = &mut sides;
            let answer = whole.send(call).integers();
            assert_eq!(repeated(run, call), answer, "{rule}");
            let fits: Vec<_> = answer[1..].chunks(3).map(|answer| answer[0]).collect();
            assert!(fits[0] == -1 && fits[1] == -1 && fits[4] == -1, "{fits:?}");
            assert!(fits[2] > 0 && fits[3] == -3, "{fits:?}");
            assert_eq!(states(run, call), states(whole, call), "{rule}");
        }
    }
}
