//! Addresses of redis-rs as those of this crate.

use redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion,
    RedisConnectionInfo,
};

use crate::{
    address::{
        Access, Address, AddressError, Login, ONLY_DATABASE_0, Place, Protocol, Sentinels, Target,
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
    Ok(read(info)?)
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
    let target = Target::Cluster(places);
    Ok(Address { target, ..first })
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
        let what = "the name of the master is empty; take the one of `sentinel monitor <name>`";
        return Err(AddressError::new(what).into());
    }
    Ok(Address {
        target: Target::Sentinel(Sentinels {
            places,
            master: master.to_owned(),
            login: first.access.login,
        }),
        access: access(servers)?,
        encrypted: first.encrypted,
    })
}

fn read(info: impl IntoConnectionInfo) -> Result<Address, AddressError> {
    let info = info.into_connection_info().map_err(|error| {
        AddressError::new(format!(
            "redis-rs refuses it: {error}; \
             a text is better given to `RedisStore::builder` as it is, which knows `rediss://` without its features"
        ))
    })?;
    address(&info)
}

fn address(info: &ConnectionInfo) -> Result<Address, AddressError> {
    let (place, encrypted) = match info.addr() {
        ConnectionAddr::Tcp(host, port) => (tcp(host, *port)?, false),
        ConnectionAddr::TcpTls { host, port, .. } => (tcp(host, *port)?, true),
        ConnectionAddr::Unix(path) => (Place::Unix(path.clone()), false),
        _ => {
            return Err(AddressError::new(
                "it is of a kind that this version of tollgate-redis does not know",
            ));
        }
    };
    if encrypted && !cfg!(feature = "tls") {
        return Err(AddressError::needs_tls());
    }
    Ok(Address {
        target: Target::Server(place),
        access: access(info.redis_settings())?,
        encrypted,
    })
}

/// The first of a list of servers that are asked alike, and where all of them are.
fn alike(
    what: &str,
    infos: impl IntoIterator<Item: IntoConnectionInfo>,
) -> Result<(Address, Vec<Place>), AddressError> {
    let addresses = (infos.into_iter().map(read)).collect::<Result<Vec<_>, _>>()?;
    let wrong = |what: String| Err(AddressError::new(what));
    let Some(first) = addresses.first() else {
        return wrong(format!("{what} is empty; name one server at least"));
    };
    let mut places = Vec::new();
    for address in &addresses {
        let (access, of_first) = (&address.access, &first.access);
        for (differs, which) in [
            (access.login != of_first.login, "users or passwords"),
            (access.database != of_first.database, "databases"),
            (access.protocol != of_first.protocol, "protocols"),
            (address.encrypted != first.encrypted, "settings of TLS"),
        ] {
            if differs {
                return wrong(format!(
                    "the addresses of {what} have different {which}; give all of them the same"
                ));
            }
        }
        match &address.target {
            Target::Server(place @ Place::Tcp(..)) => places.push(place.clone()),
            _ => {
                return wrong(format!(
                    "{what} has a socket of the file system in it; its servers are hosts with ports"
                ));
            }
        }
    }
    Ok((first.clone(), places))
}

fn tcp(host: &str, port: u16) -> Result<Place, AddressError> {
    match (host, port) {
        ("", _) => Err(AddressError::new("a host is empty")),
        (_, 0) => Err(AddressError::new("a port is 0; 6379 is usual")),
        _ => Ok(Place::Tcp(host.to_owned(), port)),
    }
}

fn access(settings: &RedisConnectionInfo) -> Result<Access, AddressError> {
    let database = u32::try_from(settings.db()).map_err(|_| {
        AddressError::new(format!(
            "the database {} is not a number from 0 on",
            settings.db()
        ))
    })?;
    Ok(Access {
        login: Login {
            user: settings.username().map(str::to_owned),
            password: settings.password().map(str::to_owned),
        },
        database,
        protocol: match settings.protocol() {
            ProtocolVersion::RESP2 => Protocol::Resp2,
            _ => Protocol::Newest,
        },
    })
}

impl TryFrom<&ConnectionInfo> for Address {
    type Error = SetupError;

    fn try_from(info: &ConnectionInfo) -> Result<Self, SetupError> {
        Ok(address(info)?)
    }
}

impl TryFrom<ConnectionInfo> for Address {
    type Error = SetupError;

    fn try_from(info: ConnectionInfo) -> Result<Self, SetupError> {
        server(info)
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
