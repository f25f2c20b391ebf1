//! One server, and what it answers.

use std::{collections::BTreeMap, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, FromRedisValue, IntoConnectionInfo,
    RedisError, RedisResult, aio::MultiplexedConnection,
};
use tokio::time::timeout;

use crate::{doctor::place::Place, failure::Failure};

/// How long a server may take for one answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection to one server.
pub(crate) struct Server {
    pub(crate) name: String,
    connection: MultiplexedConnection,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl Server {
    pub(crate) async fn connect(place: &Place) -> Result<Self, Failure> {
        let failed = |wrong: RedisError| {
            Failure::failed(format!(
                "{} cannot be asked: {}; {}",
                place.name(),
                words(&wrong),
                connect_remedy(place, &wrong)
            ))
        };
        let connection = timeout(PATIENCE, connect(place)).await;
        let connection = connection.unwrap_or_else(|_| {
            let late = std::io::Error::from(std::io::ErrorKind::TimedOut);
            Err(RedisError::from(late))
        });
        Ok(Self {
            name: place.name(),
            connection: connection.map_err(failed)?,
        })
    }

    /// Sends a command.
    pub(crate) async fn ask<T: FromRedisValue>(
        &mut self,
        command: &[&str],
    ) -> Result<T, RedisError> {
        let mut cmd = Cmd::new();
        for word in command {
            cmd.arg(*word);
        }
        cmd.query_async(&mut self.connection).await
    }

    /// Runs a script on one key.
    pub(crate) async fn eval<T: FromRedisValue>(
        &mut self,
        script: &str,
        key: &str,
    ) -> Result<T, RedisError> {
        self.ask(&["EVAL", script, "1", key]).await
    }

    /// What it says of itself.
    pub(crate) async fn info(&mut self) -> Result<BTreeMap<String, String>, RedisError> {
        let text: String = self.ask(&["INFO"]).await?;
        Ok(pairs(&text))
    }

    /// One setting, if it may be read.
    pub(crate) async fn setting(&mut self, name: &str) -> Option<String> {
        let found: Vec<String> = self.ask(&["CONFIG", "GET", name]).await.ok()?;
        found.into_iter().nth(1)
    }
}

async fn connect(place: &Place) -> RedisResult<MultiplexedConnection> {
    let addr = match &place.at {
        tollgate_redis::Place::Unix(path) => ConnectionAddr::Unix(path.clone()),
        tollgate_redis::Place::Tcp(host, port) => match place.access.trust {
            None => ConnectionAddr::Tcp(host.clone(), *port),
            Some(_) => ConnectionAddr::TcpTls {
                host: host.clone(),
                port: *port,
                insecure: false,
                tls_params: None,
            },
        },
    };
    let settings = place.access.info();
    let info = addr.into_connection_info()?.set_redis_settings(settings);
    let client = match &place.access.trust {
        None => Client::open(info)?,
        Some(trusted) => Client::build_with_tls(info, trusted.clone())?,
    };
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

/// The lines of `INFO`.
pub(crate) fn pairs(text: &str) -> BTreeMap<String, String> {
    let lines = text
        .lines()
        .filter_map(|line| line.trim_end().split_once(':'));
    lines
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// A number of `INFO`.
pub(crate) fn numbers(info: &BTreeMap<String, String>, name: &str) -> u64 {
    info.get(name)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

/// What the server has said, in its words.
pub(crate) fn words(wrong: &RedisError) -> String {
    match (wrong.code(), wrong.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (Some(code), None) => code.to_owned(),
        _ => wrong.to_string(),
    }
}

/// Whether it is about a right that the user lacks.
pub(crate) fn is_refusal(words: &str) -> bool {
    let words = words.to_lowercase();
    [
        "noperm",
        "permission",
        "acl failure",
        "can't run this command",
        "noauth",
    ]
    .iter()
    .any(|sign| words.contains(sign))
}

fn connect_remedy(place: &Place, wrong: &RedisError) -> &'static str {
    let words = words(wrong).to_lowercase();
    if words.contains("wrongpass") || words.contains("password authentication") {
        "give the user and the password in the address, as redis://user:password@host"
    } else if words.contains("noauth") {
        "it wants a password; give it in the address, as redis://:password@host"
    } else if words.contains("certificate") {
        "name the authority that its certificate is from with --ca, and the server as the certificate does"
    } else if words.contains("tls")
        || words.contains("corrupt message")
        // Redis waits for the end of a line, which the first bytes of an encrypted connection do not have.
        || wrong.is_timeout() && place.access.trust.is_some()
    {
        "does it encrypt at this port? Without encryption an address begins with redis://"
    } else if wrong.is_timeout() {
        "is a firewall between here and there?"
    } else {
        "is the server running, and the address right?"
    }
}
