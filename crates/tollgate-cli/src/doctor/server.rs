//! One server, and what it answers.

use std::{collections::BTreeMap, time::Duration};

use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult,
    aio::MultiplexedConnection,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};

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
    let stream = dial(place).await?;
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
    let info = place.access.info();
    let (connection, driver) =
        MultiplexedConnection::new_with_config(&info, stream, config).await?;
    // It ends with the last clone of the connection.
    tokio::spawn(driver);
    Ok(connection)
}

/// What the protocol is spoken over.
trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

async fn dial(place: &Place) -> RedisResult<Box<dyn ByteStream>> {
    let (host, port) = match &place.at {
        tollgate_redis::Place::Tcp(host, port) => (host.as_str(), *port),
        #[cfg(unix)]
        tollgate_redis::Place::Unix(path) => {
            return Ok(Box::new(tokio::net::UnixStream::connect(path).await?));
        }
        #[cfg(not(unix))]
        tollgate_redis::Place::Unix(_) => {
            let why = "this system has no Unix sockets";
            return Err(RedisError::from((ErrorKind::InvalidClientConfig, why)));
        }
    };
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    let Some(trust) = &place.access.trust else {
        return Ok(Box::new(stream));
    };
    let name = ServerName::try_from(host.to_owned()).map_err(|_| {
        let why = "no certificate can be for this host";
        RedisError::from((ErrorKind::InvalidClientConfig, why, host.to_owned()))
    })?;
    let connector = TlsConnector::from(std::sync::Arc::clone(trust));
    Ok(Box::new(connector.connect(name, stream).await?))
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
