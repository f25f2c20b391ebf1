//! The servers of an address, and what each answers.

use std::time::Duration;

use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, RedisError, aio::MultiplexedConnection};
use tollgate_redis::{AddressParts, Place};
use tollgate_rules::redis::{Certificates, client_of};

use crate::failure::Failure;

/// How long a server may take for one answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where the servers are, and how they are spoken to.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) parts: AddressParts,
    pub(crate) trusted: Option<Certificates>,
}

/// A connection to one server.
pub(crate) struct Server {
    pub(crate) name: String,
    connection: MultiplexedConnection,
}

impl Servers {
    /// One server of a cluster; or `None`: the only server, or the master that the sentinels name.
    pub(crate) async fn connect(&self, place: Option<&Place>) -> Result<Server, Failure> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let connection = async {
            let client = client_of(&self.parts, place, self.trusted.as_ref()).await?;
            client
                .get_multiplexed_async_connection_with_config(&config)
                .await
        };
        let name = match (&self.parts.master, place.or(self.parts.places.first())) {
            (Some(master), _) => format!("the master {master:?}"),
            (None, place) => place.map_or_else(String::new, ToString::to_string),
        };
        match connection.await {
            Ok(connection) => Ok(Server { name, connection }),
            Err(wrong) => Err(Failure::failed(format!(
                "{name} cannot be asked: {}; {}",
                words(&wrong),
                remedy(&wrong, self.parts.is_encrypted)
            ))),
        }
    }
}

impl Server {
    /// Sends a command.
    pub(crate) async fn ask<T: FromRedisValue>(
        &mut self,
        command: &[&str],
    ) -> Result<T, RedisError> {
        let mut cmd = Cmd::new();
        cmd.arg(command).query_async(&mut self.connection).await
    }

    /// One setting, if it may be read.
    pub(crate) async fn setting(&mut self, name: &str) -> Option<String> {
        let found: Vec<String> = self.ask(&["CONFIG", "GET", name]).await.ok()?;
        found.into_iter().nth(1)
    }
}

/// What the server has said, in its words.
pub(crate) fn words(wrong: &RedisError) -> String {
    match (wrong.code(), wrong.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (Some(code), None) => code.to_owned(),
        _ => wrong.to_string(),
    }
}

fn remedy(wrong: &RedisError, is_encrypted: bool) -> &'static str {
    let words = words(wrong).to_lowercase();
    let has = |signs: &[&str]| signs.iter().any(|sign| words.contains(sign));
    if has(&["wrongpass", "noauth", "password authentication"]) {
        "give the user and the password in the address, as redis://user:password@host"
    } else if has(&["certificate"]) {
        "name the authority that its certificate is from with --ca, and the server as the certificate does"
    // Redis waits for the end of a line, which the first bytes of an encrypted connection do not have.
    } else if has(&["tls", "corrupt message"]) || wrong.is_timeout() && is_encrypted {
        "does it encrypt at this port? Without encryption an address begins with redis://"
    } else {
        "is the server running, the address right, and no firewall between?"
    }
}
