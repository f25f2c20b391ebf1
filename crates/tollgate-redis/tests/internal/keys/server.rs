//! A server, and calls to it.

use redis::Value;
use tollgate_test_servers::{
    blocking_server::RedisServer,
    redis_client::{Integers as _, RedisClient},
};

use crate::{
    internal_tests::scripted::{connect, run},
    script::{args::ScriptCall, reply::ScriptReply},
};

#[derive(Debug)]
pub(crate) struct Server {
    connection: RedisClient,
    _server: RedisServer,
}

impl Server {
    pub(crate) fn start() -> Self {
        let server = RedisServer::start(&[]);
        Self {
            connection: connect(server.address()),
            _server: server,
        }
    }

    pub(crate) fn send(&mut self, call: &ScriptCall) -> ScriptReply {
        let integers = run(&mut self.connection, call).integers();
        ScriptReply::new(call.checks(), integers).expect("a whole reply")
    }

    /// The names of all states.
    pub(crate) fn names(&mut self) -> Vec<String> {
        let Value::Array(names) = self.connection.say("KEYS *") else {
            panic!("KEYS answers with a list");
        };
        let names = names.into_iter().map(|name| match name {
            Value::BulkString(name) => String::from_utf8(name).expect("ASCII"),
            other => panic!("{other:?} is no name"),
        });
        names.collect()
    }

    pub(crate) fn size(&mut self) -> i64 {
        match self.connection.say("DBSIZE") {
            Value::Int(size) => size,
            other => panic!("{other:?} is no size"),
        }
    }

    /// Puts a value of another type there.
    pub(crate) fn put_list(&mut self, name: &[u8]) {
        let answer = self.connection.command([&b"RPUSH"[..], name, b"theirs"]);
        assert_eq!(answer, Value::Int(1));
    }

    pub(crate) fn forget_everything(&mut self) {
        self.connection.say("FLUSHALL");
    }
}
