//! A server of the test's own.

use std::{
    env,
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::Duration,
};

use redis::{FromRedisValue, aio::MultiplexedConnection};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct RedisServer {
    port: u16,
    child: Child,
    _dir: TempDir,
}

impl RedisServer {
    pub(crate) async fn start() -> Self {
        for _ in 0..20 {
            // Free now. Should another process be faster, the server ends, and another port is tried.
            let free = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr());
            let mut server = Self::launch(free.expect("a free port").port());
            if timeout(PATIENCE, server.is_ready()).await == Ok(true) {
                return server;
            }
        }
        panic!(
            "redis-server does not start; install it, or name another one in TOLLGATE_REDIS_SERVER"
        );
    }

    fn launch(port: u16) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let program = env::var("TOLLGATE_REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
        let child = Command::new(program)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect(
                "redis-server is there; install it, or name another one in TOLLGATE_REDIS_SERVER",
            );
        Self {
            port,
            child,
            _dir: dir,
        }
    }

    /// Waits until it answers; false if it has ended.
    async fn is_ready(&mut self) -> bool {
        loop {
            if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return false;
            }
            if let Ok(mut connection) = self.connect().await
                && redis::cmd("PING")
                    .query_async::<String>(&mut connection)
                    .await
                    .is_ok()
            {
                return true;
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    async fn connect(&self) -> redis::RedisResult<MultiplexedConnection> {
        let client = redis::Client::open(self.url())?;
        client.get_multiplexed_async_connection().await
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn url_of(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@127.0.0.1:{}", self.port)
    }

    /// The reply to a command, as somebody with access to the server sends it.
    pub(crate) async fn ask<T: FromRedisValue>(&self, command: &[&str]) -> T {
        let mut connection = self.connect().await.expect("the server is there");
        let mut asked = redis::Cmd::new();
        command.iter().for_each(|part| {
            asked.arg(*part);
        });
        let reply = asked.query_async(&mut connection).await;
        reply.unwrap_or_else(|wrong| panic!("{command:?}: {wrong}"))
    }

    /// All that is in it, as text.
    pub(crate) async fn dump(&self) -> String {
        let mut all = String::new();
        for key in self.ask::<Vec<String>>(&["KEYS", "*"]).await {
            let kind: String = self.ask(&["TYPE", &key]).await;
            let value: redis::Value = match &*kind {
                "hash" => self.ask(&["HGETALL", &key]).await,
                "zset" => self.ask(&["ZRANGE", &key, "0", "-1", "WITHSCORES"]).await,
                "stream" => self.ask(&["XRANGE", &key, "-", "+"]).await,
                "string" => self.ask(&["GET", &key]).await,
                other => panic!("{key} is a {other}"),
            };
            all.push_str(&format!("{key}: {}\n", text(&value)));
        }
        all
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it anew at the same place, with nothing in it.
    pub(crate) async fn start_again(&mut self) {
        let mut server = Self::launch(self.port);
        let is_ready = timeout(PATIENCE, server.is_ready()).await == Ok(true);
        assert!(is_ready, "port {} is taken", self.port);
        *self = server;
    }
}

fn text(value: &redis::Value) -> String {
    match value {
        redis::Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        redis::Value::Array(values) => values.iter().map(text).collect::<Vec<_>>().join(" | "),
        other => format!("{other:?}"),
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}
