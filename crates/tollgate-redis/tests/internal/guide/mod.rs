//! What the guide says about running it, held to a server.

mod access;
mod by_hand;

use redis::Value;
use tollgate_test_servers::redis_client::RedisClient;

use crate::script::{call::ScriptCall, text};

/// The answer of the script, which the server knows already.
fn run(connection: &mut RedisClient, call: &ScriptCall) -> Value {
    let count = call.keys().len().to_string();
    let head = [
        &b"EVALSHA"[..],
        text::DECIDE.sha().as_bytes(),
        count.as_bytes(),
    ];
    connection.command(head.into_iter().chain(call.keys()).chain(call.args()))
}

fn load_script(connection: &mut RedisClient) {
    let loaded = connection.command([&b"SCRIPT"[..], b"LOAD", text::TEXT.as_bytes()]);
    assert_eq!(loaded, Value::BulkString(text::DECIDE.sha().into()));
}
