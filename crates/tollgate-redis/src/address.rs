//! What users write, and what it means.

use std::{convert::Infallible, fmt, path::PathBuf, str::FromStr};

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
/// A text that is given to [`RedisStore::builder`](crate::RedisStore::builder) is read as one. A URL of redis-rs means the same here.
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
    // Hidden: for the crates of tollgate that connect by themselves.
    /// The server, the sentinels, or servers of the cluster.
    #[doc(hidden)]
    pub places: Vec<Place>,
    /// The name by which sentinels know the master.
    #[doc(hidden)]
    pub master: Option<String>,
    /// Whether the servers are a cluster.
    #[doc(hidden)]
    pub is_cluster: bool,
    /// Whether connections are encrypted, to servers as well as to sentinels.
    #[doc(hidden)]
    pub is_encrypted: bool,
    /// Who logs in at the servers that decide.
    #[doc(hidden)]
    pub login: Login,
    /// Who logs in at the sentinels.
    #[doc(hidden)]
    pub sentinel_login: Login,
    /// The database of the server that decides.
    #[doc(hidden)]
    pub database: u32,
    /// For proxies that take `HELLO` badly.
    pub(crate) without_hello: bool,
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
    /// One server of a cluster that is at this address, with the same login.
    pub(crate) fn of_node(&self, place: Place) -> Self {
        Self {
            places: vec![place],
            is_cluster: false,
            ..self.clone()
        }
    }

    /// The same for its sentinels.
    pub(crate) fn sentinel_access(&self) -> Self {
        Self {
            login: self.sentinel_login.clone(),
            database: 0,
            ..self.clone()
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

// Who logs in.

/// A user and a password. Each may be absent.
#[doc(hidden)]
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Login {
    /// The user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
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

// Without the password.
tollgate_core::debug_fields!(Login, it => user: it.user, has_password: it.password.is_some());

// Reading an address.
//
// Written by hand because an error may not repeat what could be a password, and because a list of sentinels is no host.

type Parsed<T> = Result<T, SetupError>;

#[derive(Clone, Copy)]
enum Form {
    Server,
    Socket,
    Sentinel,
    Cluster,
}

fn wrong<T>(what: impl fmt::Display) -> Parsed<T> {
    Err(SetupError::address(what))
}

impl FromStr for Address {
    type Err = SetupError;

    /// Reads an address in one of the [forms](Address).
    ///
    /// # Errors
    ///
    /// The part that is wrong, and what would be right. No error repeats what may be a password.
    fn from_str(url: &str) -> Parsed<Self> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return wrong("there is no scheme; write it as redis://host:6379/0");
        };
        let scheme = scheme.replacen("valkey", "redis", 1).replace('+', "-");
        let is_encrypted = scheme.starts_with("rediss");
        if is_encrypted && !cfg!(feature = "tls") {
            return wrong("encrypted connections need the feature `tls` of tollgate-redis");
        }
        let form = match &*scheme {
            "redis" | "rediss" => Form::Server,
            "unix" | "redis-unix" => Form::Socket,
            "redis-sentinel" | "rediss-sentinel" => Form::Sentinel,
            "redis-cluster" | "rediss-cluster" => Form::Cluster,
            _ => {
                // Letters alone are no password that somebody put into the wrong place.
                let is_word = scheme.bytes().all(|byte| byte.is_ascii_lowercase());
                let shown = match is_word {
                    true => format!(" {scheme:?}"),
                    false => String::new(),
                };
                return wrong(format!(
                    "the scheme{shown} is not one of redis, unix, redis-sentinel, redis-cluster, or with rediss"
                ));
            }
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        if tail.ends_with("#insecure") && !tail.contains('@') {
            return wrong(
                "`#insecure` would encrypt without looking at certificates, so that anybody could be the server; leave it out, \
                 and give `RedisStoreBuilder::tls` a configuration of rustls that says whom to trust",
            );
        }
        // Otherwise a piece of the password would be taken for a host, and shown.
        if tail.contains(['@', '#']) {
            return wrong(
                "there is a `#`, or an `@` after the first `/` or `?`; \
                 in a user name or a password write `/` as %2F, `?` as %3F, `#` as %23 and `@` as %40",
            );
        }
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
        let mut address = Self {
            places: Vec::new(),
            master: None,
            is_cluster: matches!(form, Form::Cluster),
            is_encrypted,
            login: read_login(login)?,
            sentinel_login: Login::default(),
            database: 0,
            without_hello: false,
        };
        address.read_parameters(query, form)?;
        address.read_target(form, hosts, path)?;
        Ok(address)
    }
}

impl Address {
    /// Reads what stands behind the `?`.
    fn read_parameters(&mut self, query: &str, form: Form) -> Parsed<()> {
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let secret = || decode(value, name).map(Some);
            match (name, form) {
                ("protocol", _) if matches!(value, "2" | "resp2") => self.without_hello = true,
                ("protocol", _) if matches!(value, "3" | "resp3") => self.without_hello = false,
                ("protocol", _) => {
                    let what = format!("the protocol {value:?} is not one of resp2 and resp3");
                    return wrong(what);
                }
                ("db", Form::Socket) => self.database = database(value)?,
                ("user", Form::Socket) => self.login.user = secret()?,
                ("pass", Form::Socket) => self.login.password = secret()?,
                ("sentinel_username", Form::Sentinel) => self.sentinel_login.user = secret()?,
                ("sentinel_password", Form::Sentinel) => self.sentinel_login.password = secret()?,
                _ => {
                    return wrong(format!(
                        "the parameter {name:?} is not known here; every address knows protocol, unix:// also db, user and pass, \
                         and redis-sentinel:// also sentinel_username and sentinel_password"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Reads what stands in front of it, behind the login.
    fn read_target(&mut self, form: Form, hosts: &str, path: &str) -> Parsed<()> {
        let number = match form {
            Form::Server if hosts.contains(',') => {
                return wrong(
                    "redis:// names one host; a list of sentinels is written redis-sentinel://host,host2/master",
                );
            }
            Form::Socket if !hosts.is_empty() || path.len() < 2 => {
                return wrong(
                    "the path of the socket has to begin with `/`: unix:///path/to/socket",
                );
            }
            Form::Socket => {
                self.places = vec![Place::Unix(decode(path, "path of the socket")?.into())];
                return Ok(());
            }
            Form::Sentinel => {
                let path = path.strip_prefix('/').unwrap_or_default();
                let (master, number) = path.split_once('/').unwrap_or((path, ""));
                if master.is_empty() {
                    return wrong(
                        "the name of the master is missing: redis-sentinel://host:26379,host2:26379/mymaster",
                    );
                }
                self.master = Some(decode(master, "name of the master")?);
                number
            }
            Form::Server | Form::Cluster => path,
        };
        self.database = database(number.trim_matches('/'))?;
        if self.is_cluster && self.database != 0 {
            return wrong("a cluster has only database 0; leave the number out");
        }
        let usual = if self.master.is_some() { 26379 } else { 6379 };
        let places = hosts.split(',').map(|host| place(host, usual));
        self.places = places.collect::<Parsed<_>>()?;
        Ok(())
    }
}

fn read_login(text: &str) -> Parsed<Login> {
    let (user, password) = match text.split_once(':') {
        Some((user, password)) => (user, Some(decode(password, "password")?)),
        None => (text, None),
    };
    let user = (!user.is_empty())
        .then(|| decode(user, "user name"))
        .transpose()?;
    Ok(Login { user, password })
}

/// A port is never repeated in an error: where the `@` is missing it is the password.
fn place(text: &str, usual: u16) -> Parsed<Place> {
    let (host, port) = match text.strip_prefix('[').map(|it| it.split_once(']')) {
        None => text.split_once(':').unwrap_or((text, "")),
        Some(Some((host, ""))) => (host, ""),
        // Otherwise a port without its colon would be dropped, and the usual one taken.
        Some(Some((host, rest))) if rest.starts_with(':') => (host, &rest[1..]),
        Some(_) => {
            return wrong(
                "after an IPv6 address come `]` and `:` and the port: redis://[::1]:6379",
            );
        }
    };
    if host.is_empty() {
        return wrong(
            "a host is empty; write it as redis://host:6379, or redis://:password@host:6379",
        );
    }
    let port = match (port, port.parse()) {
        ("", _) => usual,
        (_, Ok(port @ 1..)) => port,
        _ => return wrong("a port is not a number from 1 to 65535"),
    };
    Ok(Place::Tcp(decode(host, "host")?, port))
}

fn database(text: &str) -> Parsed<u32> {
    match text {
        "" => Ok(0),
        _ => text.parse().or_else(|_| {
            wrong(format!(
                "the database {text:?} is not a number; write it as redis://host/0"
            ))
        }),
    }
}

/// Takes out the percent signs.
fn decode(text: &str, what: &str) -> Parsed<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digit = |at: usize| char::from(*part.as_bytes().get(at)?).to_digit(16);
        let Some((high, low)) = digit(0).zip(digit(1)) else {
            return wrong(format!(
                "the {what} has a `%` without two hexadecimal digits; a `%` itself is %25"
            ));
        };
        // Two hexadecimal digits are less than 256.
        bytes.push((high * 16 + low) as u8);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes)
        .or_else(|_| wrong(format!("the {what} is not UTF-8 once it is decoded")))
}

macro_rules! from_text {
    ($($text:ty),*) => {$(
        impl TryFrom<$text> for Address {
            type Error = SetupError;

            fn try_from(text: $text) -> Parsed<Self> {
                text.parse()
            }
        }
    )*};
}

from_text!(&str, &String, String);

#[cfg(test)]
mod tests;
