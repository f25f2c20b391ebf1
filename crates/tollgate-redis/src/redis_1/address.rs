//! Addresses of redis-rs as those of this crate.

use redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion,
    RedisConnectionInfo, io::tcp::TcpSettings,
};

use crate::{
    address::{
        Access, Address, AddressError, ForeignTls, Library, Login, ONLY_DATABASE_0, Place,
        Protocol, Sentinels, Target, TcpOptions,
    },
    error::SetupError,
};

/// The address of one server.
///
/// # Errors
///
/// What redis-rs says of it; a host that is empty, a number of a database below 0, an encrypted address without the feature
/// `tls`.
pub fn server(info: impl IntoConnectionInfo) -> Result<Address, SetupError> {
    Ok(Node::read(info)?.into_address())
}

/// The address of a cluster, by any of its servers. They have one login.
///
/// # Errors
///
/// There is none, or [one of them cannot be used](server); one is a socket, or names another database than 0; or they differ in
/// user, password, protocol or encryption.
pub fn cluster(nodes: impl IntoIterator<Item: IntoConnectionInfo>) -> Result<Address, SetupError> {
    let (first, places) = alike("a cluster", nodes)?;
    if first.access.database != 0 {
        return Err(AddressError::new(ONLY_DATABASE_0).into());
    }
    Ok(first.with_target(Target::Cluster(places)))
}

/// The address of the server that sentinels know as `master`. Who logs in at the sentinels is in their addresses; who logs in
/// at the servers is in `servers`, with the database and what else is said there. Servers are encrypted where sentinels are.
///
/// # Errors
///
/// There is no sentinel, or [one of them cannot be used](server); the name is empty; or they differ in user, password, protocol
/// or encryption.
pub fn sentinel(
    sentinels: impl IntoIterator<Item: IntoConnectionInfo>,
    master: &str,
    servers: &RedisConnectionInfo,
) -> Result<Address, SetupError> {
    let (first, places) = alike("the list of sentinels", sentinels)?;
    if master.is_empty() {
        return Err(AddressError::new(
            "the name of the master is empty; take the one of `sentinel monitor <name>`",
        )
        .into());
    }
    let access = Access {
        tcp: first.access.tcp.clone(),
        ..access(servers)?
    };
    let sentinels = Sentinels {
        places,
        master: master.to_owned(),
        login: first.access.login.clone(),
    };
    let address = first.with_target(Target::Sentinel(sentinels));
    Ok(Address { access, ..address })
}

/// One address of redis-rs.
struct Node {
    place: Place,
    access: Access,
    encrypted: bool,
    foreign_tls: Option<ForeignTls>,
}

impl Node {
    fn read(info: impl IntoConnectionInfo) -> Result<Self, AddressError> {
        let info = info.into_connection_info().map_err(|error| {
            AddressError::new(format!(
                "redis-rs refuses it: {error}; \
                 a text is better given to `RedisStore::builder` as it is, which knows `rediss://` without its features"
            ))
        })?;
        Self::of(&info)
    }

    fn of(info: &ConnectionInfo) -> Result<Self, AddressError> {
        let (place, tls) = match info.addr() {
            ConnectionAddr::Tcp(host, port) => (tcp(host, *port)?, None),
            ConnectionAddr::TcpTls {
                host,
                port,
                insecure,
                tls_params,
            } => {
                let foreign = if *insecure {
                    Some(ForeignTls::Insecure)
                } else {
                    tls_params.is_some().then_some(ForeignTls::Parameters)
                };
                (tcp(host, *port)?, Some(foreign))
            }
            ConnectionAddr::Unix(path) => (Place::Unix(path.clone()), None),
            _ => {
                return Err(AddressError::new(
                    "it is of a kind that this version of tollgate-redis does not know",
                ));
            }
        };
        if tls.is_some() && !cfg!(feature = "tls") {
            return Err(AddressError::needs_tls());
        }
        Ok(Self {
            place,
            access: Access {
                tcp: tcp_options(info.tcp_settings()),
                ..access(info.redis_settings())?
            },
            encrypted: tls.is_some(),
            foreign_tls: tls.flatten(),
        })
    }

    fn into_address(self) -> Address {
        let target = Target::Server(self.place.clone());
        self.with_target(target)
    }

    fn with_target(self, target: Target) -> Address {
        Address {
            target,
            access: self.access,
            encrypted: self.encrypted,
            foreign_tls: self.foreign_tls,
        }
    }
}

/// The first of a list of servers that are asked alike, and where all of them are.
fn alike(
    what: &str,
    infos: impl IntoIterator<Item: IntoConnectionInfo>,
) -> Result<(Node, Vec<Place>), AddressError> {
    let mut nodes = infos.into_iter().map(Node::read);
    let first = nodes
        .next()
        .ok_or_else(|| AddressError::new(format!("{what} is empty; name one server at least")))??;
    let mut places = vec![first.place.clone()];
    for node in nodes {
        let node = node?;
        let differs = [
            (
                node.access.login != first.access.login,
                "users or passwords",
            ),
            (node.access.database != first.access.database, "databases"),
            (node.access.protocol != first.access.protocol, "protocols"),
            (
                (node.encrypted, node.foreign_tls) != (first.encrypted, first.foreign_tls),
                "settings of TLS",
            ),
        ];
        if let Some((_, which)) = differs.iter().find(|(differs, _)| *differs) {
            return Err(AddressError::new(format!(
                "the addresses of {what} have different {which}; give all of them the same"
            )));
        }
        places.push(node.place);
    }
    if places.iter().any(|place| matches!(place, Place::Unix(_))) {
        return Err(AddressError::new(format!(
            "{what} has a socket of the file system in it; its servers are hosts with ports"
        )));
    }
    Ok((first, places))
}

fn tcp(host: &str, port: u16) -> Result<Place, AddressError> {
    if host.is_empty() {
        return Err(AddressError::new("a host is empty"));
    }
    if port == 0 {
        return Err(AddressError::new("a port is 0; 6379 is usual"));
    }
    Ok(Place::Tcp(host.to_owned(), port))
}

fn access(settings: &RedisConnectionInfo) -> Result<Access, AddressError> {
    let database = u32::try_from(settings.db()).map_err(|_| {
        AddressError::new(format!(
            "the database {} is not a number from 0 on",
            settings.db()
        ))
    })?;
    let text = |text: Option<&str>| text.map(str::to_owned);
    let library = match (settings.lib_name(), settings.lib_ver()) {
        _ if settings.skip_set_lib_name() => Library::Untold,
        (Some(name), version) => Library::Named(name.to_owned(), text(version).unwrap_or_default()),
        (None, _) => Library::Own,
    };
    Ok(Access {
        login: Login {
            user: text(settings.username()),
            password: text(settings.password()),
        },
        database,
        protocol: match settings.protocol() {
            ProtocolVersion::RESP2 => Protocol::Resp2,
            _ => Protocol::Newest,
        },
        library,
        tcp: TcpOptions::default(),
    })
}

fn tcp_options(settings: &TcpSettings) -> TcpOptions {
    TcpOptions {
        keepalive: settings.keepalive().cloned(),
        #[cfg(any(target_os = "android", target_os = "linux"))]
        user_timeout: settings.user_timeout(),
        #[cfg(not(any(target_os = "android", target_os = "linux")))]
        user_timeout: None,
    }
}

impl TryFrom<&ConnectionInfo> for Address {
    type Error = SetupError;

    fn try_from(info: &ConnectionInfo) -> Result<Self, SetupError> {
        Ok(Node::of(info)?.into_address())
    }
}

impl TryFrom<ConnectionInfo> for Address {
    type Error = SetupError;

    fn try_from(info: ConnectionInfo) -> Result<Self, SetupError> {
        Self::try_from(&info)
    }
}

impl TryFrom<ConnectionAddr> for Address {
    type Error = SetupError;

    fn try_from(addr: ConnectionAddr) -> Result<Self, SetupError> {
        server(addr)
    }
}

impl TryFrom<&Client> for Address {
    type Error = SetupError;

    fn try_from(client: &Client) -> Result<Self, SetupError> {
        Self::try_from(client.get_connection_info())
    }
}

#[cfg(test)]
mod tests;
