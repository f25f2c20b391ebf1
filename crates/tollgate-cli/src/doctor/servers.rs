//! The servers of an address, and what each answers.

use std::{fmt, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, FromRedisValue, IntoConnectionInfo,
    ProtocolVersion, RedisConnectionInfo, RedisError, TlsCertificates, aio::MultiplexedConnection,
};
use tokio::time::timeout;
use tollgate_redis::{AddressParts, Place};

use crate::{failure::Failure, redis_args::RedisArgs};

/// How long a server may take for one answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where the servers are, and how they are spoken to.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) parts: AddressParts,
    trust: Option<TlsCertificates>,
}

/// A connection to one server.
pub(crate) struct Server {
    pub(crate) name: String,
    connection: MultiplexedConnection,
}

impl Servers {
    pub(crate) fn of(args: &RedisArgs) -> Result<Self, Failure> {
        let address = args.address()?;
        Ok(Self {
            trust: args.trust.certificates(&address)?,
            parts: address.parts(),
        })
    }

    pub(crate) async fn connect(
        &self,
        place: &Place,
        is_sentinel: bool,
    ) -> Result<Server, Failure> {
        let parts = &self.parts;
        let (login, database) = match is_sentinel {
            true => (&parts.sentinel_login, 0),
            false => (&parts.login, parts.database),
        };
        let mut settings = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP2)
            .set_db(database.into());
        if let Some(user) = &login[0] {
            settings = settings.set_username(user);
        }
        if let Some(password) = &login[1] {
            settings = settings.set_password(password);
        }
        let addr = match place {
            Place::Unix(path) => ConnectionAddr::Unix(path.clone()),
            Place::Tcp(host, port) if parts.is_encrypted => ConnectionAddr::TcpTls {
                host: host.clone(),
                port: *port,
                insecure: false,
                tls_params: None,
            },
            Place::Tcp(host, port) => ConnectionAddr::Tcp(host.clone(), *port),
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let connect = async {
            let info = addr.into_connection_info()?.set_redis_settings(settings);
            let client = match &self.trust {
                None => Client::open(info)?,
                Some(trusted) => Client::build_with_tls(info, trusted.clone())?,
            };
            client
                .get_multiplexed_async_connection_with_config(&config)
                .await
        };
        let connection = timeout(PATIENCE, connect).await.unwrap_or_else(|_| {
            Err(RedisError::from(std::io::Error::from(
                std::io::ErrorKind::TimedOut,
            )))
        });
        match connection {
            Ok(connection) => Ok(Server {
                name: name(place),
                connection,
            }),
            Err(wrong) => Err(Failure::failed(format!(
                "{} cannot be asked: {}; {}",
                name(place),
                words(&wrong),
                remedy(&wrong, parts.is_encrypted)
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
        for word in command {
            cmd.arg(*word);
        }
        cmd.query_async(&mut self.connection).await
    }

    /// One setting, if it may be read.
    pub(crate) async fn setting(&mut self, name: &str) -> Option<String> {
        let found: Vec<String> = self.ask(&["CONFIG", "GET", name]).await.ok()?;
        found.into_iter().nth(1)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Its host and port, or its path, without user and password.
pub(crate) fn name(place: &Place) -> String {
    match place {
        Place::Tcp(host, port) if host.contains(':') => format!("[{host}]:{port}"),
        Place::Tcp(host, port) => format!("{host}:{port}"),
        Place::Unix(path) => path.display().to_string(),
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
