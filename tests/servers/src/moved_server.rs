//! A server whose clock can be moved.

use std::{
    fs::{self, File},
    net::SocketAddr,
    os::unix::fs::FileExt as _,
    path::Path,
    process::Command,
};

use redis::Value;
use tempfile::TempDir;

use crate::{blocking_server::RedisServer, redis_client::RedisClient};

/// Microseconds, as the store counts them.
pub type Micros = i64;

/// A server, and the file that its clock reads. Ends on drop.
#[derive(Debug)]
pub struct MovedServer {
    server: RedisServer,
    clock: File,
    moved: Micros,
    _files: TempDir,
}

impl MovedServer {
    /// A server whose clock shows `now`, and goes on from there.
    #[must_use]
    pub fn start(now: Micros) -> Self {
        let files = TempDir::new().expect("a folder for the clock");
        let library = files.path().join("clock.so");
        compile(&library);
        let name = files.path().join("clock");
        fs::write(&name, [0; 16]).expect("the clock is written");
        let clock = File::options().write(true).open(&name);
        let environment = [("LD_PRELOAD", &*library), ("TOLLGATE_CLOCK", &*name)];
        let mut server = Self {
            server: RedisServer::start_with(&[], &environment),
            clock: clock.expect("the clock is there"),
            moved: 0,
            _files: files,
        };
        let real = server.now();
        server.jump(now - real);
        let shown = server.now();
        assert!(
            (now..now + 60_000_000).contains(&shown),
            "the clock of redis-server cannot be moved: it shows {shown} and not {now}"
        );
        server
    }

    /// Where it is, as `RedisStore::builder` takes it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.server.address())
    }

    /// Moves the clock ahead or back.
    pub fn jump(&mut self, by: Micros) {
        self.moved += by;
        let moved = self.clock.write_all_at(&self.moved.to_ne_bytes(), 0);
        moved.expect("the clock is written");
    }

    /// Stops the clock at `now`.
    pub fn stand_at(&self, now: Micros) {
        let written = self.clock.write_all_at(&now.to_ne_bytes(), 8);
        written.expect("the clock is written");
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// The time that it shows.
    #[must_use]
    pub fn now(&self) -> Micros {
        let Value::Array(parts) = RedisClient::connect(self.server.address()).say("TIME") else {
            panic!("TIME answers a list");
        };
        let number = |part: &Value| -> Micros {
            let Value::BulkString(digits) = part else {
                panic!("{part:?} is no number");
            };
            String::from_utf8_lossy(digits).parse().expect("digits")
        };
        number(&parts[0]) * 1_000_000 + number(&parts[1])
    }

    /// How many ms the state of the one client of this rule lives, by the server; `None` if there is none.
    #[must_use]
    pub fn time_to_live(&self, rule: &str) -> Option<i64> {
        let mut connection = RedisClient::connect(self.server.address());
        let Value::Array(keys) = connection.say(&format!("KEYS *:{rule}:??")) else {
            panic!("KEYS answers a list");
        };
        let [Value::BulkString(key)] = &keys[..] else {
            assert!(keys.is_empty(), "{keys:?}");
            return None;
        };
        match connection.command([&b"PTTL"[..], key]) {
            Value::Int(-2) => None,
            Value::Int(left) => Some(left),
            other => panic!("{other:?} is not a time to live"),
        }
    }
}

fn compile(library: &Path) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/clock.c");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(library)
        .arg(source)
        .output();
    let compiled = compiled.unwrap_or_else(|error| {
        panic!(
            "this test moves the clock of a server by a small C library, and there is no compiler `cc` ({error}): \
             on Debian or Ubuntu `apt-get install gcc libc6-dev`"
        )
    });
    let errors = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "cc: {errors}");
}
