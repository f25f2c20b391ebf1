//! A server of the test's own: on a free port of the loopback, in a folder of its own, killed on drop.

use std::{
    fs,
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use redis::{Client, Cmd, Connection, FromRedisValue};
use tempfile::TempDir;

/// Attempts to reach a server: half a minute, on a busy machine.
const POLLS: u32 = 3_000;
const PAUSE: Duration = Duration::from_millis(10);
/// Should another process be faster at a free port, the server ends, and another port is tried.
const PORTS: u32 = 8;

#[derive(Debug)]
pub(crate) struct RedisServer {
    child: Child,
    port: u16,
    _dir: TempDir,
}

impl RedisServer {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_program("redis-server", args)
    }

    /// Another server than the one on the path.
    pub(crate) fn start_program(program: &str, args: &[&str]) -> Self {
        Self::start_by(program, |port, dir| {
            let mut command = Command::new(program);
            command
                .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
                .args(["--save", "", "--appendonly", "no", "--dir"])
                .arg(dir)
                .args(args);
            command
        })
    }

    /// A sentinel that watches a master, which it calls `limits`.
    pub(crate) fn start_sentinel(master: &Self) -> Self {
        Self::start_by("redis-server", |port, dir| {
            let settings = format!(
                "port {port}\nbind 127.0.0.1\nsentinel monitor limits 127.0.0.1 {} 1\n",
                master.port
            );
            let file = dir.join("sentinel.conf");
            fs::write(&file, settings).expect("a file");
            let mut command = Command::new("redis-server");
            command.arg(file).arg("--sentinel");
            command
        })
    }

    fn start_by(program: &str, command: impl Fn(u16, &Path) -> Command) -> Self {
        for _ in 0..PORTS {
            let (port, dir) = (free_port(), tempfile::tempdir().expect("a folder"));
            let child = command(port, dir.path())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            let child = child.unwrap_or_else(|wrong| {
                panic!(
                    "{program} could not be started ({wrong}): on Debian or Ubuntu `apt-get install redis-server`; the servers in \
                     target/servers come with ./test.sh"
                )
            });
            let mut server = Self {
                child,
                port,
                _dir: dir,
            };
            for _ in 0..POLLS {
                if server.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                    break;
                }
                if server.is_up() {
                    return server;
                }
                thread::park_timeout(PAUSE);
            }
        }
        panic!("{program} does not start");
    }

    fn is_up(&self) -> bool {
        let Ok(mut connection) = self.try_connect() else {
            return false;
        };
        let pong = redis::cmd("PING").query::<String>(&mut connection);
        pong.is_ok_and(|pong| pong == "PONG")
    }

    fn try_connect(&self) -> redis::RedisResult<Connection> {
        Client::open(self.url())?.get_connection_with_timeout(Duration::from_secs(5))
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// As this user.
    pub(crate) fn url_of(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@127.0.0.1:{}", self.port)
    }

    /// Sends a command, which the server has to agree to.
    pub(crate) fn ask<T: FromRedisValue>(&self, command: &[&str]) -> T {
        let mut cmd = Cmd::new();
        for word in command {
            cmd.arg(*word);
        }
        let mut connection = self.try_connect().expect("the server answers");
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

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port of the loopback that was free just now.
pub(crate) fn free_port() -> u16 {
    // Two tests are not given one port at the same time.
    static GIVEN: Mutex<Vec<u16>> = Mutex::new(Vec::new());
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
        if !given.contains(&port) {
            given.push(port);
            return port;
        }
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
