//! A server of the test's own, and what an intruder would read and write there.

use redis::{FromRedisValue, aio::MultiplexedConnection};
use tollgate_test_servers::redis_server;

#[derive(Debug)]
pub(crate) struct RedisServer(redis_server::RedisServer);

impl RedisServer {
    pub(crate) async fn start() -> Self {
        Self(redis_server::RedisServer::start(&[]).await)
    }

    async fn connect(&self) -> redis::RedisResult<MultiplexedConnection> {
        let client = redis::Client::open(self.url())?;
        client.get_multiplexed_async_connection().await
    }

    pub(crate) fn url(&self) -> String {
        self.0.url()
    }

    pub(crate) fn url_of(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@127.0.0.1:{}", self.0.port())
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
        self.0.kill();
    }

    /// Starts it anew at the same place, with nothing in it.
    pub(crate) async fn start_again(&mut self) {
        self.0.restart().await;
    }
}

fn text(value: &redis::Value) -> String {
    match value {
        redis::Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        redis::Value::Array(values) => values.iter().map(text).collect::<Vec<_>>().join(" | "),
        other => format!("{other:?}"),
    }
}
