//! The table of memory for each key.

use std::time::Duration;

use crate::{
    keys::keyspace::{Keyspace, Partition},
    script::{call::Call, encoder::Encoder},
};
use redis::Value;
use tollgate_core::{Check, Fingerprint, MINUTE, Quota, Rule, RuleSet};
use tollgate_test_servers::{
    blocking_server::RedisServer,
    redis_client::{Integers as _, RedisClient},
};

use crate::internal_tests::guide::{load_script, run};

const KEYS_OF_A_CALL: u32 = 1_000;
const NOW: u64 = 1_700_000_123_456_789;

/// So that the server, which has another time, forgets nothing.
const MARGIN: Duration = Duration::from_secs(1 << 31);

/// Each row, and how it is made: a quota, and how many units are taken, each in a sub-bucket of its own.
const ROWS: [(&str, Quota, u64); 7] = [
    (
        "token bucket, GCRA, leaky bucket",
        Quota::gcra(60, MINUTE),
        1,
    ),
    ("fixed window", Quota::fixed_window(60, MINUTE), 1),
    ("sliding window", Quota::sliding_window(60, MINUTE), 1),
    ("sliding log, 1 unit", Quota::sliding_log(60, MINUTE), 1),
    ("sliding log, 10 units", Quota::sliding_log(60, MINUTE), 10),
    (
        "sliding buckets, 1 in use",
        Quota::sliding_buckets(60, MINUTE),
        1,
    ),
    (
        "sliding buckets, 10 in use",
        Quota::sliding_buckets(60, MINUTE),
        10,
    ),
];

/// The bytes of a value, and of memory for each key.
fn measured(quota: Quota, units: u64) -> (u64, u64) {
    // As full a table of keys as with 100 000 of them.
    let keys = if units == 1 { 25_000 } else { 5_000 };
    let server = RedisServer::start(&[]);
    let mut connection = RedisClient::connect(server.address());
    load_script(&mut connection);
    let rules = RuleSet::new([Rule::new("search-per-key", quota)]).expect("a valid rule");
    let keyspace = Keyspace::new("shop", Partition::Key).expect("a valid name");
    let encoder = Encoder::new(&rules, keyspace).expect("no plans");
    // The server keeps what a call needs: it is not to be counted as states.
    fill(&mut connection, &encoder, 1, 1);
    connection.say("FLUSHALL");
    let empty = used_memory(&mut connection);
    fill(&mut connection, &encoder, keys, units);
    assert_eq!(connection.say("DBSIZE"), Value::Int(keys.into()));
    let used = used_memory(&mut connection) - empty;
    let Value::BulkString(key) = connection.say("RANDOMKEY") else {
        panic!("there are keys");
    };
    let Value::Int(length) = connection.command([&b"STRLEN"[..], &key]) else {
        panic!("a state is a string");
    };
    (length as u64, used / u64::from(keys))
}

fn fill(connection: &mut RedisClient, encoder: &Encoder, keys: u32, units: u64) {
    for unit in 0..units {
        for start in (0..keys).step_by(KEYS_OF_A_CALL as usize) {
            let mut call = Call::at(NOW + unit * 6_000_000, MARGIN);
            for key in start..keys.min(start + KEYS_OF_A_CALL) {
                let check = Check::new(0, Fingerprint::from_bits(key.into()), 1);
                assert!(call.acquire(encoder, &[check]).is_some());
            }
            let answers = run(connection, &call).integers();
            assert!(answers[1..].chunks(3).all(|answer| answer[0] == -1));
        }
    }
}

fn used_memory(connection: &mut RedisClient) -> u64 {
    let Value::BulkString(info) = connection.say("INFO memory") else {
        panic!("INFO is a text");
    };
    let info = String::from_utf8(info).expect("a text");
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"));
    line.and_then(|bytes| bytes.parse().ok()).expect("a number")
}

/// The numbers of a row: the bytes of a value, then of memory on the servers of the table.
fn reported(label: &str) -> (u64, Vec<u64>) {
    let page = include_str!("../../../guide/sizing.md");
    let start = format!("| {label} | ");
    let row = page.lines().find_map(|line| line.strip_prefix(&*start));
    let mut numbers = row
        .unwrap_or_else(|| panic!("no row begins with {start:?}"))
        .split(" | ")
        .map(|cell| cell.trim_end_matches(" |").parse().expect("a number"));
    (numbers.next().expect("a number"), numbers.collect())
}

#[test]
fn a_key_takes_as_much_memory_as_the_guide_says() {
    for (label, quota, units) in ROWS {
        let (value, memory) = measured(quota, units);
        let (value_stated, memory_stated) = reported(label);
        assert_eq!(value, value_stated, "{label}");
        // Allocators and versions of servers differ.
        let least = memory_stated.iter().min().expect("a server") * 3 / 4;
        let most = memory_stated.iter().max().expect("a server") * 4 / 3;
        assert!(
            (least..=most).contains(&memory),
            "{label}: {memory} bytes, and the guide says {memory_stated:?}"
        );
    }
}
