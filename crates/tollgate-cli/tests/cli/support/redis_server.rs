//! A server of the test's own, and commands to it.

use std::{fs, path::Path, thread, time::Duration};

use redis::{Client, Cmd, Connection, FromRedisValue};
use tempfile::TempDir;
use tollgate_test_servers::blocking_server::{self, PAUSE, POLLS};

#[derive(Debug)]
pub(crate) struct RedisServer {
    server: blocking_server::RedisServer,
    /// What a sentinel has read, and writes anew.
    _settings: Option<TempDir>,
}

impl RedisServer {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_program("redis-server", args)
    }

    /// Another server than the one on the path.
    pub(crate) fn start_program(program: &str, args: &[&str]) -> Self {
        Self {
            server: blocking_server::RedisServer::start_program(program, args),
            _settings: None,
        }
    }

    /// A sentinel that watches a master, which it calls `limits`.
    pub(crate) fn start_sentinel(master: &Self) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("sentinel.conf");
        let settings = format!("sentinel monitor limits 127.0.0.1 {} 1\n", master.port());
        fs::write(&file, settings).expect("a file");
        let file = file.to_str().expect("a plain name");
        Self {
            _settings: Some(folder),
            ..Self::start(&[file, "--sentinel"])
        }
    }

    fn connect(&self) -> redis::RedisResult<Connection> {
        Client::open(self.url())?.get_connection_with_timeout(Duration::from_secs(30))
    }

    pub(crate) fn port(&self) -> u16 {
        self.server.port()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// As this user.
    pub(crate) fn url_of(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@127.0.0.1:{}", self.port())
    }

    /// Sends a command, which the server has to agree to.
    pub(crate) fn ask<T: FromRedisValue>(&self, command: &[&str]) -> T {
        let mut cmd = Cmd::new();
        for word in command {
            cmd.arg(*word);
        }
        let mut connection = self.connect().expect("the server answers");
        cmd.query(&mut connection)
            .unwrap_or_else(|wrong| panic!("{command:?}: {wrong}"))
    }

    /// Writes until it refuses.
    pub(crate) fn fill(&self) {
        // Small values, so that it is full to the last of them. A script is refused as a whole.
        let script = "for n = 1, 200 do if redis.pcall('SET', KEYS[1] .. n, ARGV[1]).err then return 1 end end return 0";
        let value = "x".repeat(1_000);
        let mut batches = 0..1_000_u32;
        let refused = batches.any(|batch| {
            let key = format!("filler:{batch}:");
            self.ask::<u32>(&["EVAL", script, "1", &key, &value]) == 1
        });
        assert!(refused, "it has no bound");
    }

    /// Waits until a command is answered by a text with these words.
    pub(crate) fn until(&self, command: &[&str], words: &str) {
        for _ in 0..POLLS {
            let answer: redis::Value = self.ask(command);
            if format!("{answer:?}").contains(words) {
                return;
            }
            thread::park_timeout(PAUSE);
        }
        panic!("{command:?} was never answered by {words:?}");
    }
}

/// One of the servers in `target/servers`.
pub(crate) fn server_program(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/servers");
    let program = folder.join(name);
    assert!(
        program.exists(),
        "{} is not there; ./test.sh takes it from PyPI",
        program.display()
    );
    program.display().to_string()
}
