//! The script on a server.

use redis::Value;
use tollgate_test_servers::{
    blocking_server::RedisServer, moved_server::MovedServer, redis_client::RedisClient,
};

use crate::{
    internal_tests::scripted::{connect, push, run},
    script::args::ScriptCall,
};

#[derive(Debug)]
pub(crate) struct Server {
    process: Process,
    connection: RedisClient,
}

#[derive(Debug)]
enum Process {
    OnTime { _server: RedisServer },
    Moved(MovedServer),
}

/// A state, and for how many ms it lives: -1 for ever.
pub(crate) type State = (Vec<u8>, i64);

/// What became of a call.
#[derive(Debug)]
pub(crate) struct CarriedOut {
    pub(crate) answer: Value,
    /// What is behind each key of the call, if anything is.
    pub(crate) states: Vec<(Vec<u8>, Option<State>)>,
    /// When it began, and when all of it was read, in µs by the server's clock.
    pub(crate) between: (u64, u64),
}

impl Server {
    pub(crate) fn start() -> Self {
        let server = RedisServer::start(&[]);
        Self {
            connection: connect(server.address()),
            process: Process::OnTime { _server: server },
        }
    }

    /// One whose clock [stands](Self::stand_at).
    pub(crate) fn start_standing() -> Self {
        let server = MovedServer::start(1_700_000_000_000_000);
        Self {
            connection: connect(server.address()),
            process: Process::Moved(server),
        }
    }

    /// Puts its clock to a time, where it stays.
    pub(crate) fn stand_at(&self, now: u64) {
        match &self.process {
            Process::Moved(server) => server.stand_at(now as i64),
            Process::OnTime { .. } => panic!("the clock of this server goes by itself"),
        }
    }

    /// The time by its clock.
    pub(crate) fn now(&mut self) -> u64 {
        time(&self.connection.say("TIME"))
    }

    /// Sends a call, and gives its answer.
    pub(crate) fn run(&mut self, call: &ScriptCall) -> Value {
        run(&mut self.connection, call)
    }

    /// Sends a call, and looks at all states that it may have written.
    pub(crate) fn carry_out(&mut self, call: &ScriptCall) -> CarriedOut {
        self.connection.push([&b"TIME"[..]]);
        push(&mut self.connection, call.keys(), call.args());
        for key in call.keys() {
            self.connection.push([b"GET", key]);
            self.connection.push([b"PTTL", key]);
        }
        self.connection.push([&b"TIME"[..]]);
        self.connection.flush();
        let begun = time(&self.connection.answer());
        let answer = self.connection.answer();
        let states = call.keys().map(|key| {
            let state = self.connection.answer();
            let lives = self.connection.answer();
            let state = match (state, lives) {
                (Value::BulkString(state), Value::Int(lives)) if lives != -2 => {
                    Some((state, lives))
                }
                // It may have ended between the two.
                _ => None,
            };
            (key.to_vec(), state)
        });
        let states = states.collect();
        let ended = time(&self.connection.answer());
        CarriedOut {
            answer,
            states,
            between: (begun, ended),
        }
    }

    pub(crate) fn command(&mut self, words: &[&[u8]]) -> Value {
        self.connection.command(words.iter().copied())
    }

    /// What is behind a key, if anything is.
    pub(crate) fn state_of(&mut self, key: &[u8]) -> Option<State> {
        match (self.command(&[b"GET", key]), self.command(&[b"PTTL", key])) {
            (Value::BulkString(state), Value::Int(lives)) => Some((state, lives)),
            _ => None,
        }
    }

    pub(crate) fn forget_everything(&mut self) {
        self.connection.say("FLUSHALL");
    }
}

/// What `TIME` answers, in µs.
fn time(answer: &Value) -> u64 {
    let Value::Array(parts) = answer else {
        panic!("TIME answers a list");
    };
    let number = |part: &Value| -> u64 {
        let Value::BulkString(digits) = part else {
            panic!("{part:?} is no number");
        };
        String::from_utf8_lossy(digits).parse().expect("digits")
    };
    number(&parts[0]) * 1_000_000 + number(&parts[1])
}
