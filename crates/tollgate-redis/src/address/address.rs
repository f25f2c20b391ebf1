//! What users write, and what it means.

use std::{convert::Infallible, fmt, path::PathBuf};

use crate::{
    address::access::{Access, Login},
    error::SetupError,
};

/// Where a Redis is: a server, sentinels that know which server, or a cluster. With who logs in.
///
/// | form | means |
/// | --- | --- |
/// | `redis://[user[:password]@]host[:6379][/database]` | one server |
/// | `unix://[user[:password]@]/path/to/socket[?db=database]` | one server, through a socket |
/// | `redis-sentinel://[user[:password]@]host[:26379][,host2…]/master[/database]` | the server that Sentinel names |
/// | `redis-cluster://[user[:password]@]host[:6379][,host2…]` | a Redis Cluster, by any of its servers |
///
/// With `rediss://`, `rediss-sentinel://` and `rediss-cluster://` every connection is encrypted (feature `tls`). With `+` for the
/// dash they mean the same, and so does `valkey` for `redis`. `?protocol=resp2` logs in without `HELLO`,
/// for proxies that take it badly. `?sentinel_username=…&sentinel_password=…` is for
/// sentinels that want a login of their own. A socket takes `?user=…&pass=…` too. What has a meaning in a URL is percent-encoded
/// in a user name or a password: `/` is `%2F`, `@` is `%40`.
///
/// Whatever becomes an `Address` can be given to [`RedisStore::builder`](crate::RedisStore::builder): these texts, and with the
/// feature `redis-1` the addresses of redis-rs, by the module `redis_1`.
///
/// ```
/// use tollgate_redis::Address;
///
/// let address: Address = "redis://limits:sesame@cache.internal/2".parse()?;
/// assert!(!format!("{address:?}").contains("sesame"));
/// let error = "redis://cache.internal/two".parse::<Address>().unwrap_err();
/// assert!(error.to_string().contains("\"two\" is not a number"));
/// # Ok::<(), tollgate_redis::SetupError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Address {
    pub(crate) target: Target,
    /// Who logs in at the server that decides.
    pub(crate) access: Access,
    /// Whether connections are encrypted, to servers as well as to sentinels.
    pub(crate) encrypted: bool,
}

/// Who has to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// One server.
    Server(Place),
    /// The master that sentinels know by this name.
    Sentinel(Sentinels),
    /// The cluster that these servers know.
    Cluster(Vec<Place>),
}

/// The sentinels of a master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sentinels {
    pub(crate) places: Vec<Place>,
    pub(crate) master: String,
    pub(crate) login: Login,
}

/// Where one server listens.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A host, by name or number, and a port.
    Tcp(String, u16),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl Address {
    /// An address without a login, and with nothing else said.
    #[cfg(test)]
    pub(crate) fn of_target(target: Target) -> Self {
        Self {
            target,
            access: Access::default(),
            encrypted: false,
        }
    }

    /// One server of a cluster that is at this address, with the same login.
    pub(crate) fn of_node(&self, place: Place) -> Self {
        Self {
            target: Target::Server(place),
            ..self.clone()
        }
    }

    /// Who logs in at these sentinels.
    pub(crate) fn sentinel_access(&self, sentinels: &Sentinels) -> Access {
        Access {
            login: sentinels.login.clone(),
            database: 0,
            ..self.access.clone()
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// An [`Address`] is one already.
impl From<Infallible> for SetupError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
