//! What users write, and what it means.

use std::{convert::Infallible, fmt, path::PathBuf};

use crate::error::SetupError;

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

// An address in parts, for the crates of tollgate that connect by themselves.

/// What an [`Address`] says. It is for other crates of tollgate and may change in any release.
#[doc(hidden)]
#[derive(Clone)]
#[non_exhaustive]
pub struct AddressParts {
    /// The server, the sentinels, or servers of the cluster.
    pub places: Vec<Place>,
    /// The name by which sentinels know the master.
    pub master: Option<String>,
    /// Whether the servers are a cluster.
    pub is_cluster: bool,
    /// Whether connections are encrypted.
    pub is_encrypted: bool,
    /// The database.
    pub database: u32,
    /// Who logs in at the servers: a user and a password.
    pub login: [Option<String>; 2],
    /// Who logs in at the sentinels.
    pub sentinel_login: [Option<String>; 2],
}

impl Address {
    /// The address in parts. It is for other crates of tollgate.
    #[doc(hidden)]
    #[must_use]
    pub fn parts(&self) -> AddressParts {
        let login = |login: &Login| [login.user.clone(), login.password.clone()];
        let (places, sentinels) = match &self.target {
            Target::Server(place) => (vec![place.clone()], None),
            Target::Sentinel(sentinels) => (sentinels.places.clone(), Some(sentinels)),
            Target::Cluster(places) => (places.clone(), None),
        };
        AddressParts {
            places,
            master: sentinels.map(|sentinels| sentinels.master.clone()),
            is_cluster: matches!(self.target, Target::Cluster(_)),
            is_encrypted: self.encrypted,
            database: self.access.database,
            login: login(&self.access.login),
            sentinel_login: sentinels.map_or([None, None], |sentinels| login(&sentinels.login)),
        }
    }
}

// Without the passwords.
tollgate_core::debug_fields!(AddressParts, it => places: it.places, master: it.master);

// What a connection says of itself once there is one: who logs in, and to which database.

/// What a connection is given and says before its first command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    pub(crate) login: Login,
    pub(crate) database: u32,
    /// For proxies that take `HELLO` badly.
    pub(crate) without_hello: bool,
}

/// A user and a password, either of which may be absent.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

impl Access {
    /// The same with another login, if there is one.
    pub(crate) fn by(&self, login: Option<&Login>) -> Self {
        Self {
            login: login.unwrap_or(&self.login).clone(),
            ..self.clone()
        }
    }
}

impl Login {
    /// The user and the password, where there is a password. Before access lists everybody was `default`.
    pub(crate) fn parts(&self) -> Option<(&str, &str)> {
        let password = self.password.as_deref()?;
        Some((self.user.as_deref().unwrap_or("default"), password))
    }

    /// The command that logs in, where there is a password. Servers before Redis 6 know no users.
    pub(crate) fn auth(&self) -> Option<Vec<&str>> {
        let password = self.password.as_deref()?;
        Some(match self.user.as_deref() {
            Some(user) => vec!["AUTH", user, password],
            None => vec!["AUTH", password],
        })
    }
}

/// Without the password.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| ".."))
            .finish()
    }
}
