//! A server that knows the script, and the script run with what a call brings.

use std::net::SocketAddr;

use redis::Value;
use tollgate_test_servers::redis_client::RedisClient;

use crate::script::{args::ScriptCall, text};

pub(crate) fn connect(address: SocketAddr) -> RedisClient {
    let mut connection = RedisClient::connect(address);
    let loaded = connection.command([&b"SCRIPT"[..], b"LOAD", text::TEXT.as_bytes()]);
    assert_eq!(loaded, Value::BulkString(text::DECIDE.sha().into()));
    connection
}

pub(crate) fn run(connection: &mut RedisClient, call: &ScriptCall) -> Value {
    run_with(connection, call.keys(), call.args())
}

/// With keys and arguments as they are.
pub(crate) fn run_with<'a>(
    connection: &mut RedisClient,
    keys: impl ExactSizeIterator<Item = &'a [u8]>,
    args: impl Iterator<Item = &'a [u8]>,
) -> Value {
    push(connection, keys, args);
    connection.flush();
    connection.answer()
}

/// Writes it, to be sent with more.
pub(crate) fn push<'a>(
    connection: &mut RedisClient,
    keys: impl ExactSizeIterator<Item = &'a [u8]>,
    args: impl Iterator<Item = &'a [u8]>,
) {
    let count = keys.len().to_string();
    let sha = text::DECIDE.sha().as_bytes();
    let head = [&b"EVALSHA"[..], sha, count.as_bytes()];
    // As long as the count lives.
    let rest = keys.chain(args).map(|word| -> &[u8] { word });
    connection.push(head.into_iter().chain(rest));
}
