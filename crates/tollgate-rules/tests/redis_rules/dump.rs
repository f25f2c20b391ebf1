//! What an intruder would read on a server.

use redis::Value;
use tollgate_test_servers::redis_server::RedisServer;

/// All that is in it, as text.
pub(crate) fn dump(server: &RedisServer) -> String {
    let mut all = String::new();
    for key in server.ask::<Vec<String>>(&["KEYS", "*"]) {
        let kind: String = server.ask(&["TYPE", &key]);
        let value: Value = match &*kind {
            "hash" => server.ask(&["HGETALL", &key]),
            "zset" => server.ask(&["ZRANGE", &key, "0", "-1", "WITHSCORES"]),
            "stream" => server.ask(&["XRANGE", &key, "-", "+"]),
            "string" => server.ask(&["GET", &key]),
            other => panic!("{key} is a {other}"),
        };
        all.push_str(&format!("{key}: {}\n", text(&value)));
    }
    all
}

fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Array(values) => values.iter().map(text).collect::<Vec<_>>().join(" | "),
        other => format!("{other:?}"),
    }
}
