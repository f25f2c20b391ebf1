//! What instances tell each other through Redis.

use redis::Value;
use tollgate_test_servers::{blocking_server::RedisServer, redis_client::RedisClient};

const MEMBERS: &str = include_str!("../../../lua/members.lua");

/// After so many ms without a word something is gone.
const GONE_AFTER: &str = "15000";

/// Announces members, and asks for all ("1"), or for their number ("0").
fn announce(connection: &mut RedisClient, wanted: &str, members: &[&str]) -> Value {
    let head = ["EVAL", MEMBERS, "1", "shop:set", GONE_AFTER, wanted];
    let words = head.iter().chain(members);
    connection.command(words.map(|word| word.as_bytes()))
}

fn texts(value: Value) -> Vec<String> {
    let Value::Array(values) = value else {
        panic!("{value:?} is no list");
    };
    let text = |value| match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).expect("a text"),
        other => panic!("{other:?} is no text"),
    };
    values.into_iter().map(text).collect()
}

/// A member that was heard so many seconds before now.
fn received(connection: &mut RedisClient, member: &str, seconds_ago: i64) {
    let now = &texts(connection.say("TIME"))[0];
    let now: i64 = now.parse().expect("seconds");
    let now = now * 1_000;
    let at = (now - seconds_ago * 1_000).to_string();
    let answer = connection.command(["ZADD", "shop:set", &at, member].map(str::as_bytes));
    assert_eq!(answer, Value::Int(1));
}

#[test]
fn quotas_are_there_for_as_long_as_an_instance_has_them() {
    let server = RedisServer::start(&[]);
    let mut connection = RedisClient::connect(server.address());
    let said = ["api\ngcra(5)", "login\nlog(5)"];
    assert_eq!(texts(announce(&mut connection, "1", &said)), said);
    let other = ["api\ngcra(6)"];
    let mut all = texts(announce(&mut connection, "1", &other));
    all.sort();
    assert_eq!(all, ["api\ngcra(5)", "api\ngcra(6)", "login\nlog(5)"]);
    // One that no process has any more, one from before the clock went back, and a recent one.
    connection.say("DEL shop:set");
    received(&mut connection, "old", 16);
    received(&mut connection, "future", -3_600);
    received(&mut connection, "late", 10);
    assert_eq!(texts(announce(&mut connection, "1", &[])), ["late"]);
    assert_lives(&mut connection, "shop:set", 15_000);
}

/// A key that no instance writes any more ends by itself.
fn assert_lives(connection: &mut RedisClient, key: &str, most: i64) {
    let Value::Int(lives) = connection.say(&format!("PTTL {key}")) else {
        panic!("a time is a number");
    };
    // A test that is slow may look late.
    assert!((most / 2..=most).contains(&lives), "{key}: {lives}");
}

#[test]
fn instances_that_are_gone_are_not_counted() {
    let server = RedisServer::start(&[]);
    let mut connection = RedisClient::connect(server.address());
    received(&mut connection, "old", 16);
    received(&mut connection, "future", -3_600);
    received(&mut connection, "late", 10);
    let mut beat = || announce(&mut connection, "0", &["own"]);
    assert_eq!(beat(), Value::Int(2));
    assert_eq!(beat(), Value::Int(2));
    assert_lives(&mut connection, "shop:set", 15_000);
}
