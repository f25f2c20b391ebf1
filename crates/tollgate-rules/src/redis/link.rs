//! Connections to the servers that have the rules, by the clients of redis-rs.

use std::{future::poll_fn, pin::Pin, time::Duration};

#[cfg(feature = "tls")]
use ::redis::TlsCertificates;
use ::redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, FromRedisValue,
    IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo, RedisError, RedisResult,
    ServerErrorKind, TlsMode,
    aio::{ConnectionLike, PubSub},
    cluster::ClusterClientBuilder,
    from_redis_value,
    sentinel::{SentinelClientBuilder, SentinelServerType},
};
use futures_core::Stream;
use tokio::{sync::Mutex, time::timeout};
use tollgate_redis::{Address, Login, Place};

#[cfg(feature = "tls")]
use crate::redis::certificates::Certificates;
use crate::redis::push_error::{PushError, PushErrorKind};

/// How long a connection may take, and then each reply.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// How long a call to a cluster may take, with all that it is sent again for.
const CLUSTER_PATIENCE: Duration = Duration::from_secs(6);

/// The servers of an address: one, the one that sentinels name, or those of a cluster.
pub(crate) struct Servers {
    address: Address,
    #[cfg(feature = "tls")]
    pub(crate) certificates: Option<TlsCertificates>,
    /// For commands, once there was one.
    connection: Mutex<Option<Connection>>,
}

/// A connection for commands. Its futures are boxed, as those of users hold them.
type Connection = Box<dyn ConnectionLike + Send>;

impl Servers {
    /// Connections to these are not encrypted.
    pub(crate) fn new(address: Address) -> Self {
        Self {
            address,
            #[cfg(feature = "tls")]
            certificates: None,
            connection: Mutex::default(),
        }
    }

    /// Sends a command.
    pub(crate) async fn send<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, PushError> {
        let mut kept = self.connection.lock().await;
        self.reply(&mut kept, command).await.map_err(|wrong| {
            // What the server says itself leaves the connection as it was.
            if wrong.code().is_none() {
                *kept = None;
            }
            let address = &self.address;
            let message = match (wrong.redirect_node(), wrong.kind(), &address.master) {
                (Some((server, slot)), ..) if !address.is_cluster => format!(
                    "Redis is a cluster, and the rules' slot {slot} is on {server}; write the address as redis-cluster://{server}"
                ),
                (_, ErrorKind::Server(ServerErrorKind::TryAgain), _) => format!(
                    "the rules' slot moves from one server to another, and not all of its keys are there yet: {wrong}; try again when it has moved"
                ),
                (_, ErrorKind::MasterNameNotFoundBySentinel, Some(master)) => {
                    format!("the sentinels know no master of the name {master:?}: {wrong}")
                }
                // Without a password, the server does not even read a command that is long.
                _ if ["NOAUTH", "unauthenticated", "authentication failed"]
                    .iter()
                    .any(|sign| wrong.to_string().contains(sign)) =>
                {
                    format!("Redis: {wrong}; give the user and the password in the address, as redis://user:password@host")
                }
                _ => format!("Redis: {wrong}"),
            };
            PushError::new(PushErrorKind::Unavailable, message)
        })
    }

    async fn reply<T: FromRedisValue>(
        &self,
        kept: &mut Option<Connection>,
        command: &Cmd,
    ) -> RedisResult<T> {
        // A master that was replaced may go on answering: the sentinels are asked again, as often as a process looks.
        let usable = match kept.take().filter(|_| self.address.master.is_none()) {
            Some(connection) => connection,
            None => Box::pin(self.connect()).await?,
        };
        let connection = kept.insert(usable);
        let reply = connection.req_packed_command(command).await?;
        Ok(from_redis_value(reply.extract_error()?)?)
    }

    async fn connect(&self) -> RedisResult<Connection> {
        if self.address.is_cluster {
            return in_time(CLUSTER_PATIENCE, self.cluster()).await;
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let client = self.client().await?;
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        Ok(Box::new(connection.await?))
    }

    /// A connection for the publications of a channel. In a cluster they reach every server.
    async fn listen(&self, channel: &str) -> RedisResult<PubSub> {
        let subscribe = async |client: Client| {
            let mut pubsub = client.get_async_pubsub().await?;
            pubsub.subscribe(channel).await?;
            Ok(pubsub)
        };
        if !self.address.is_cluster {
            let subscribed = async { subscribe(self.client().await?).await };
            return in_time(PATIENCE, subscribed).await;
        }
        // One that is silent leaves time for the others, and one that is far away has time to answer.
        let places = &self.address.places;
        let patience = PATIENCE / places.len().clamp(1, 4) as u32;
        for place in places {
            if let Ok(listens) = in_time(patience, subscribe(self.open(place)?)).await {
                return Ok(listens);
            }
        }
        Err(late())
    }

    /// The one server, or the master that the first sentinel names which answers.
    async fn client(&self) -> RedisResult<Client> {
        let Some(master) = &self.address.master else {
            let place = self.address.places.first().ok_or_else(late)?;
            return self.open(place);
        };
        let sentinels = self.address.places.iter().map(|place| self.addr(place));
        let mut builder =
            SentinelClientBuilder::new(sentinels, master, SentinelServerType::Master)?
                .set_client_to_redis_protocol(ProtocolVersion::RESP2)
                .set_client_to_redis_db(i64::from(self.address.database));
        let Login { user, password } = &self.address.login;
        if let Some(user) = user {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = password {
            builder = builder.set_client_to_redis_password(password);
        }
        let Login { user, password } = &self.address.sentinel_login;
        if let Some(user) = user {
            builder = builder.set_client_to_sentinel_username(user);
        }
        if let Some(password) = password {
            builder = builder.set_client_to_sentinel_password(password);
        }
        if self.address.is_encrypted {
            builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
        }
        #[cfg(feature = "tls")]
        if let Some(certificates) = &self.certificates {
            builder = builder
                .set_client_to_redis_certificates(certificates.clone())
                .set_client_to_sentinel_certificates(certificates.clone());
        }
        let mut sentinels = builder.build()?;
        // They are asked one after the other, and then the master itself.
        let patience = PATIENCE * (1 + self.address.places.len() as u32);
        in_time(patience, sentinels.async_get_client()).await
    }

    async fn cluster(&self) -> RedisResult<Connection> {
        let nodes = self.address.places.iter().map(|place| self.info(place));
        let builder = ClusterClientBuilder::new(nodes.collect::<RedisResult<Vec<_>>>()?)
            .connection_timeout(PATIENCE)
            .response_timeout(PATIENCE)
            .overall_response_timeout(Some(CLUSTER_PATIENCE))
            // While a hash slot moves, a call whose keys are on two servers is tried again.
            .min_retry_wait(50)
            .max_retry_wait(500);
        #[cfg(feature = "tls")]
        let builder = match &self.certificates {
            Some(certificates) => builder.certs(certificates.clone()),
            None => builder,
        };
        let connection = builder.build()?.get_async_connection().await?;
        Ok(Box::new(connection))
    }

    fn open(&self, place: &Place) -> RedisResult<Client> {
        let info = self.info(place)?;
        #[cfg(feature = "tls")]
        if let Some(certificates) = &self.certificates {
            return Client::build_with_tls(info, certificates.clone());
        }
        Client::open(info)
    }

    fn info(&self, place: &Place) -> RedisResult<ConnectionInfo> {
        let mut settings = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP2)
            .set_db(i64::from(self.address.database));
        let Login { user, password } = &self.address.login;
        if let Some(user) = user {
            settings = settings.set_username(user);
        }
        if let Some(password) = password {
            settings = settings.set_password(password);
        }
        let info = self.addr(place).into_connection_info()?;
        Ok(info.set_redis_settings(settings))
    }

    fn addr(&self, place: &Place) -> ConnectionAddr {
        match place {
            Place::Tcp(host, port) if self.address.is_encrypted => ConnectionAddr::TcpTls {
                host: host.clone(),
                port: *port,
                insecure: false,
                tls_params: None,
            },
            Place::Tcp(host, port) => ConnectionAddr::Tcp(host.clone(), *port),
            Place::Unix(path) => ConnectionAddr::Unix(path.clone()),
        }
    }
}

/// A client of one server; without a place, of the only one, or of the master that the sentinels name. It is for other crates of tollgate.
///
/// # Errors
///
/// The sentinels name no master, or the certificates cannot be read.
#[cfg(feature = "tls")]
#[doc(hidden)]
pub async fn client_of(
    address: &Address,
    place: Option<&Place>,
    trusted: Option<&Certificates>,
) -> RedisResult<Client> {
    let mut servers = Servers::new(address.clone());
    servers.certificates = trusted.map(|it| it.0.clone());
    match place {
        Some(place) => servers.open(place),
        None => servers.client().await,
    }
}

async fn in_time<T>(
    patience: Duration,
    answer: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    let answer = timeout(patience, answer).await;
    answer.unwrap_or_else(|_| Err(late()))
}

fn late() -> RedisError {
    RedisError::from((ErrorKind::Io, "there is no connection in time"))
}

/// Publications of a channel.
pub(crate) struct Subscription(PubSub);

impl Subscription {
    /// `None`: Redis does not let us, or does not answer. Looking is enough then.
    pub(crate) async fn new(servers: &Servers, channel: &str) -> Option<Self> {
        Box::pin(servers.listen(channel)).await.ok().map(Self)
    }

    /// Waits for a publication. `None`: the connection is broken.
    pub(crate) async fn next(&mut self) -> Option<()> {
        let mut messages = self.0.on_message();
        poll_fn(|cx| Pin::new(&mut messages).poll_next(cx))
            .await
            .map(drop)
    }
}
