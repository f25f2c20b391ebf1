//! The table of memory for each key.

use std::{
    net::SocketAddr,
    thread::sleep,
    time::{Duration, Instant},
};

use crate::{
    keys::keyspace::{Keyspace, Partition},
    script::{call::Call, encoder::Encoder},
};
use redis::Value;
use tollgate_core::{Check, MINUTE, Quota, Rule, RuleSet, store::Fingerprint};
use tollgate_test_servers::{
    blocking_server::RedisServer,
    redis_client::{Integers as _, RedisClient},
    redis_server::PATIENCE,
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
    let address = server.address();
    let mut watcher = RedisClient::connect(address);
    load_script(&mut watcher);
    let rules = RuleSet::new([Rule::new("search-per-key", quota)]).expect("a valid rule");
    let keyspace = Keyspace::new("shop", Partition::Key).expect("a valid name");
    let encoder = Encoder::new(&rules, keyspace).expect("no plans");
    // The server keeps what a call needs: it is not to be counted as states.
    fill(address, &encoder, 1, 1);
    watcher.say("FLUSHALL");
    let empty = used_memory(&mut watcher);
    fill(address, &encoder, keys, units);
    assert_eq!(watcher.say("DBSIZE"), Value::Int(keys.into()));
    let used = used_memory(&mut watcher) - empty;
    let Value::BulkString(key) = watcher.say("RANDOMKEY") else {
        panic!("there are keys");
    };
    let Value::Int(length) = watcher.command([&b"STRLEN"[..], &key]) else {
        panic!("a state is a string");
    };
    (length as u64, used / u64::from(keys))
}

/// Through a connection of its own: what a server holds for one, half a megabyte behind large calls, goes with it.
fn fill(server: SocketAddr, encoder: &Encoder, keys: u32, units: u64) {
    let mut connection = RedisClient::connect(server);
    for unit in 0..units {
        for start in (0..keys).step_by(KEYS_OF_A_CALL as usize) {
            let mut call = Call::at(NOW + unit * 6_000_000, MARGIN);
            for key in start..keys.min(start + KEYS_OF_A_CALL) {
                let check = Check::new(0, Fingerprint::from_bits(key.into()), 1);
                assert!(call.acquire(encoder, &[check]).is_some());
            }
            let answers = run(&mut connection, &call).integers();
            assert!(answers[1..].chunks(3).all(|answer| answer[0] == -1));
        }
    }
}

/// What the server uses as soon as it has closed every other connection.
#[expect(clippy::disallowed_methods, reason = "a condition with a deadline")]
fn used_memory(watcher: &mut RedisClient) -> u64 {
    let until = Instant::now() + PATIENCE;
    while info(watcher, "clients", "connected_clients") > 1 {
        assert!(Instant::now() < until, "connections stay open");
        sleep(Duration::from_millis(5));
    }
    info(watcher, "memory", "used_memory")
}

fn info(watcher: &mut RedisClient, section: &str, field: &str) -> u64 {
    let Value::BulkString(info) = watcher.say(&format!("INFO {section}")) else {
        panic!("INFO is a text");
    };
    let info = String::from_utf8(info).expect("a text");
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.and_then(|value| value.parse().ok()).expect("a number")
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
