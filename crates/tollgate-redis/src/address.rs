//! Where a Redis is, as its users write it.
//!
//! | form | means |
//! | --- | --- |
//! | `redis://[user[:password]@]host[:6379][/database]` | one server |
//! | `unix://[user[:password]@]/path/to/socket[?db=database]` | one server, through a socket |
//! | `redis-sentinel://[user[:password]@]host[:26379][,host2…]/master[/database]` | the server that Sentinel names |
//! | `redis-cluster://[user[:password]@]host[:6379][,host2…]` | a Redis Cluster, of which any servers are named |
//!
//! With `rediss://`, `rediss-sentinel://` and `rediss-cluster://` every connection is encrypted (feature `tls`). With `+` for the
//! dash they mean the same, and `?sentinel_username=…&sentinel_password=…` is for sentinels that want a login of their own. What
//! has a meaning in a URL is percent-encoded in a user name or a password: `/` is `%2F`, `@` is `%40`.

mod error;
mod parse;
#[cfg(test)]
mod tests;

use std::{fmt, path::PathBuf};

pub(crate) use self::error::AddressError;

/// A server, sentinels that know which server, or a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    target: Target,
    login: Login,
    database: u32,
    encrypted: bool,
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
    places: Vec<Place>,
    master: String,
    login: Login,
}

/// Where one server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// A host, by name or number, and a port.
    Tcp(String, u16),
    /// A socket in the file system.
    Unix(PathBuf),
}

/// A user and a password, either of which may be absent.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    user: Option<String>,
    password: Option<String>,
}

impl Address {
    /// Reads an address in one of the forms above.
    ///
    /// # Errors
    ///
    /// The part that is wrong, and what would be right. No error repeats what may be a password.
    pub(crate) fn parse(url: &str) -> Result<Self, AddressError> {
        parse::address(url)
    }

    /// One server of a cluster that is at this address, with the same login.
    pub(crate) fn of_node(&self, place: Place) -> Self {
        Self {
            target: Target::Server(place),
            ..self.clone()
        }
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Who logs in at the server that decides.
    pub(crate) fn login(&self) -> &Login {
        &self.login
    }

    pub(crate) fn database(&self) -> u32 {
        self.database
    }

    /// Whether connections are encrypted, to servers as well as to sentinels.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.encrypted
    }
}

impl Sentinels {
    pub(crate) fn places(&self) -> &[Place] {
        &self.places
    }

    pub(crate) fn master(&self) -> &str {
        &self.master
    }

    /// Who logs in at the sentinels.
    pub(crate) fn login(&self) -> &Login {
        &self.login
    }
}

impl Login {
    /// The user and the password, where there is a password. Before access lists everybody was `default`.
    pub(crate) fn parts(&self) -> Option<(&str, &str)> {
        let password = self.password.as_deref()?;
        Some((self.user.as_deref().unwrap_or("default"), password))
    }

    /// Whether a user is named, which servers before Redis 6 do not know.
    pub(crate) fn names_a_user(&self) -> bool {
        self.user.is_some()
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| ".."))
            .finish()
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
