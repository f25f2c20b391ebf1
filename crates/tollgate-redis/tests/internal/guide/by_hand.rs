//! The program for other languages.

use std::{env, fs, process::Command};

use crate::{
    keys::keyspace::{Keyspace, Partition},
    script::{args::ScriptCall, encoder::Encoder, text},
};
use redis::Value;
use tollgate_core::{Check, HOUR, Quota, Rule, RuleSet, store::Fingerprint};
use tollgate_test_servers::{
    blocking_server::RedisServer,
    redis_client::{Integers as _, RedisClient},
};

use crate::internal_tests::scripted::{connect, run};

/// The budget of the programs, as this crate counts it.
fn encoder() -> Encoder {
    let rules = RuleSet::new([Rule::new("api", Quota::gcra(60, HOUR))]);
    let keyspace = Keyspace::new("shop", Partition::Key).expect("letters");
    Encoder::new(&rules.expect("a valid rule"), keyspace).expect("no plans")
}

fn call() -> ScriptCall {
    let mut call = ScriptCall::new();
    let check = Check::new(0, Fingerprint::from_bits(7), 1);
    assert!(call.acquire(&encoder(), &[check]).is_some());
    call
}

/// What the program printed after a unit was taken of `key`.
fn take_by_python(server: &RedisServer, key: &str) -> String {
    let script = server.dir().join("script.lua");
    fs::write(&script, text::TEXT).expect("a folder of the test's own");
    let python = env::var_os("TOLLGATE_PYTHON").unwrap_or_else(|| "python3".into());
    let out = Command::new(&python)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/take.py"))
        .arg(server.port().to_string())
        .arg(&script)
        .arg(key)
        .output()
        .unwrap_or_else(|error| {
            panic!(
                "{} could not be started ({error}): this test needs Python 3, or its path in TOLLGATE_PYTHON",
                python.display()
            )
        });
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).expect("text")
}

#[test]
fn a_program_in_python_and_this_crate_take_of_one_budget() {
    let server = RedisServer::start(&[]);
    let mut connection = RedisClient::connect(server.address());
    let call = call();
    let key = call.keys().next().expect("one");
    let key = str::from_utf8(key).expect("letters");
    let by_python = take_by_python(&server, key);
    assert!(by_python.starts_with("allowed, 59 left, "), "{by_python}");
    // The program has taught the server the script.
    assert_eq!(run(&mut connection, &call).integers()[1..3], [-1, 58]);
    let by_python = take_by_python(&server, key);
    assert!(by_python.starts_with("allowed, 57 left, "), "{by_python}");
    for _ in 0..56 {
        run(&mut connection, &call);
    }
    let by_python = take_by_python(&server, key);
    assert!(
        by_python.starts_with("allowed, 0 left, the next one fits in "),
        "{by_python}"
    );
    let by_python = take_by_python(&server, key);
    assert!(
        by_python.starts_with("denied, 0 left, it fits in "),
        "{by_python}"
    );
}

#[test]
fn what_a_state_looks_like_is_as_the_page_says() {
    let server = RedisServer::start(&[]);
    let mut connection = connect(server.address());
    let call = call();
    let now = run(&mut connection, &call).integers()[0];
    let key = call.keys().next().expect("one");
    assert!(key.starts_with(b"shop:{") && key.ends_with(b"}:api:a1"));
    let Value::BulkString(state) = connection.command([&b"GET"[..], key]) else {
        panic!("it was written");
    };
    // The quota, then the time until which units were taken.
    assert_eq!((state.len(), state[0]), (33, 17));
    let number = |at: usize| f64::from_le_bytes(state[at..at + 8].try_into().expect("eight"));
    assert_eq!([number(1), number(9)], [60_000_000.0, 60.0]);
    assert_eq!(number(21), (now + 60_000_000) as f64);
    assert_eq!(connection.command([&b"DEL"[..], key]), Value::Int(1));
    assert_eq!(run(&mut connection, &call).integers()[2], 59);
}
