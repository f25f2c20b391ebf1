//! Reading an address.
//!
//! Written by hand because an error may not repeat what could be a password, and because a list of sentinels is no host.

use std::{borrow::Cow, str::FromStr};

use crate::{
    address::{Access, Address, AddressError, Login, Place, Protocol, Sentinels, Target},
    error::SetupError,
};

const SERVER_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// Why a cluster is given no number of a database.
pub(crate) const ONLY_DATABASE_0: &str = "a cluster has only database 0; leave the number out";

type Result<T> = std::result::Result<T, AddressError>;

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    ///
    /// The part that is wrong, and what would be right. No error repeats what may be a password.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| {
            AddressError::new("there is no scheme; write it as redis://host:6379/0")
        })?;
        let (scheme, rest) = (&*in_words_of_redis(scheme), rest);
        let encrypted = scheme.starts_with("rediss");
        if encrypted && !cfg!(feature = "tls") {
            return Err(AddressError::needs_tls());
        }
        let address = match scheme {
            "redis" | "rediss" => server(Parts::of(rest)?),
            "unix" | "redis+unix" => socket(Parts::of(rest)?),
            "redis-sentinel" | "redis+sentinel" | "rediss-sentinel" | "rediss+sentinel" => {
                sentinel(Parts::of(rest)?)
            }
            "redis-cluster" | "redis+cluster" | "rediss-cluster" | "rediss+cluster" => {
                cluster(Parts::of(rest)?)
            }
            // Letters alone are no password that somebody put into the wrong place.
            other if other.bytes().all(|byte| byte.is_ascii_lowercase()) => {
                Err(AddressError::new(format!(
                    "the scheme {other:?} is not one of redis, unix, redis-sentinel, redis-cluster, or with rediss"
                )))
            }
            _ => Err(AddressError::new(
                "the scheme is not one of redis, unix, redis-sentinel, redis-cluster, or with rediss",
            )),
        }?;
        Ok(Self {
            encrypted,
            ..address
        })
    }
}

impl FromStr for Address {
    type Err = SetupError;

    /// Reads an address in one of the [forms](Address).
    ///
    /// # Errors
    ///
    /// The part that is wrong, and what would be right. No error repeats what may be a password.
    fn from_str(text: &str) -> std::result::Result<Self, SetupError> {
        Ok(Self::parse(text)?)
    }
}

impl TryFrom<&str> for Address {
    type Error = SetupError;

    fn try_from(text: &str) -> std::result::Result<Self, SetupError> {
        text.parse()
    }
}

impl TryFrom<&String> for Address {
    type Error = SetupError;

    fn try_from(text: &String) -> std::result::Result<Self, SetupError> {
        text.parse()
    }
}

impl TryFrom<String> for Address {
    type Error = SetupError;

    fn try_from(text: String) -> std::result::Result<Self, SetupError> {
        text.parse()
    }
}

/// A scheme that says `valkey`, with `redis` for it.
fn in_words_of_redis(scheme: &str) -> Cow<'_, str> {
    match scheme.strip_prefix("valkey") {
        Some(rest) => Cow::Owned(format!("redis{rest}")),
        None => Cow::Borrowed(scheme),
    }
}

/// `login@hosts/path?query`, not yet decoded.
struct Parts<'a> {
    login: Login,
    hosts: &'a str,
    path: &'a str,
    query: Vec<(&'a str, &'a str)>,
}

impl<'a> Parts<'a> {
    fn of(rest: &'a str) -> Result<Self> {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        if tail.ends_with("#insecure") && !tail.contains('@') {
            return Err(AddressError::new(
                "`#insecure` would encrypt without looking at certificates, so that anybody could be the server; leave it out, \
                 and give `RedisStoreBuilder::tls` a configuration of rustls that says whom to trust",
            ));
        }
        // Otherwise a piece of the password would be taken for a host, and shown.
        if tail.contains(['@', '#']) {
            return Err(AddressError::new(
                "there is a `#`, or an `@` after the first `/` or `?`; \
                 in a user name or a password write `/` as %2F, `?` as %3F, `#` as %23 and `@` as %40",
            ));
        }
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (self::login(login)?, hosts),
            None => (Login::default(), authority),
        };
        let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
        let query = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .collect();
        Ok(Self {
            login,
            hosts,
            path,
            query,
        })
    }

    /// The value of `name`, which is then no longer among the rest.
    fn take(&mut self, name: &str) -> Option<&'a str> {
        let place = self.query.iter().position(|(key, _)| *key == name)?;
        Some(self.query.remove(place).1)
    }

    /// The address of `target`, with the same log-in.
    fn address(self, target: Target, database: u32, protocol: Protocol) -> Address {
        Address {
            access: Access {
                login: self.login,
                database,
                protocol,
                ..Access::default()
            },
            ..Address::of_target(target)
        }
    }

    fn nothing_left(&self, known: &str) -> Result<()> {
        match self.query.first() {
            None => Ok(()),
            Some((name, _)) => Err(AddressError::new(format!(
                "the parameter {name:?} is not known; {known}"
            ))),
        }
    }
}

fn server(mut parts: Parts<'_>) -> Result<Address> {
    let protocol = protocol(&mut parts)?;
    parts.nothing_left("redis:// knows protocol")?;
    if parts.hosts.contains(',') {
        return Err(AddressError::new(
            "redis:// names one host; a list of sentinels is written redis-sentinel://host,host2/master",
        ));
    }
    let target = Target::Server(place(parts.hosts, SERVER_PORT)?);
    let database = database(parts.path.trim_matches('/'))?;
    Ok(parts.address(target, database, protocol))
}

fn socket(mut parts: Parts<'_>) -> Result<Address> {
    let protocol = protocol(&mut parts)?;
    let database = database(parts.take("db").unwrap_or_default())?;
    let user = text(parts.take("user"), "user")?;
    let password = text(parts.take("pass"), "pass")?;
    if user.is_some() || password.is_some() {
        parts.login = Login { user, password };
    }
    parts.nothing_left("unix:// knows db, user, pass and protocol")?;
    if !parts.hosts.is_empty() || parts.path.len() < 2 {
        return Err(AddressError::new(
            "the path of the socket has to begin with `/`: unix:///path/to/socket",
        ));
    }
    let path = decode(parts.path, "path of the socket")?;
    Ok(parts.address(Target::Server(Place::Unix(path.into())), database, protocol))
}

fn sentinel(mut parts: Parts<'_>) -> Result<Address> {
    let protocol = protocol(&mut parts)?;
    let login = Login {
        user: text(parts.take("sentinel_username"), "sentinel_username")?,
        password: text(parts.take("sentinel_password"), "sentinel_password")?,
    };
    parts.nothing_left(
        "redis-sentinel:// knows sentinel_username, sentinel_password and protocol",
    )?;
    let path = parts.path.strip_prefix('/').unwrap_or_default();
    let (master, number) = path.split_once('/').unwrap_or((path, ""));
    if master.is_empty() {
        return Err(AddressError::new(
            "the name of the master is missing: redis-sentinel://host:26379,host2:26379/mymaster",
        ));
    }
    let sentinels = Sentinels {
        places: parts
            .hosts
            .split(',')
            .map(|host| place(host, SENTINEL_PORT))
            .collect::<Result<_>>()?,
        master: decode(master, "name of the master")?,
        login,
    };
    let database = database(number.trim_matches('/'))?;
    Ok(parts.address(Target::Sentinel(sentinels), database, protocol))
}

fn cluster(mut parts: Parts<'_>) -> Result<Address> {
    let protocol = protocol(&mut parts)?;
    parts.nothing_left("redis-cluster:// knows protocol")?;
    if database(parts.path.trim_matches('/'))? != 0 {
        return Err(AddressError::new(ONLY_DATABASE_0));
    }
    let places = parts
        .hosts
        .split(',')
        .map(|host| place(host, SERVER_PORT))
        .collect::<Result<_>>()?;
    Ok(parts.address(Target::Cluster(places), 0, protocol))
}

fn protocol(parts: &mut Parts<'_>) -> Result<Protocol> {
    match parts.take("protocol") {
        None | Some("3" | "resp3") => Ok(Protocol::Newest),
        Some("2" | "resp2") => Ok(Protocol::Resp2),
        Some(other) => Err(AddressError::new(format!(
            "the protocol {other:?} is not one of resp2 and resp3"
        ))),
    }
}

fn text(value: Option<&str>, what: &str) -> Result<Option<String>> {
    value.map(|value| decode(value, what)).transpose()
}

fn login(text: &str) -> Result<Login> {
    let (user, password) = match text.split_once(':') {
        Some((user, password)) => (user, Some(decode(password, "password")?)),
        None => (text, None),
    };
    Ok(Login {
        user: match user {
            "" => None,
            user => Some(decode(user, "user name")?),
        },
        password,
    })
}

/// A port is never repeated in an error: where the `@` is missing it is the password.
fn place(text: &str, usual: u16) -> Result<Place> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or_else(|| {
                AddressError::new("an IPv6 address ends with `]`: redis://[::1]:6379")
            })?;
            // Otherwise a port without its colon would be dropped, and the usual one taken.
            let port = match rest {
                "" => None,
                rest => Some(rest.strip_prefix(':').ok_or_else(|| {
                    AddressError::new("after `]` comes a `:` and the port: redis://[::1]:6379")
                })?),
            };
            (host, port.filter(|port| !port.is_empty()))
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(AddressError::new(
            "a host is empty; write it as redis://host:6379, or redis://:password@host:6379",
        ));
    }
    let port = match port {
        None => usual,
        Some(port) => port
            .parse()
            .ok()
            .filter(|port| *port != 0)
            .ok_or_else(|| AddressError::new("a port is not a number from 1 to 65535"))?,
    };
    Ok(Place::Tcp(decode(host, "host")?, port))
}

fn database(text: &str) -> Result<u32> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        AddressError::new(format!(
            "the database {text:?} is not a number; write it as redis://host/0"
        ))
    })
}

fn decode(text: &str, what: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |place: usize| {
            tail.get(place)
                .and_then(|&byte| char::from(byte).to_digit(16))
        };
        let (Some(high), Some(low)) = (digit(0), digit(1)) else {
            return Err(AddressError::new(format!(
                "the {what} has a `%` without two hexadecimal digits; a `%` itself is %25"
            )));
        };
        // Two hexadecimal digits are less than 256.
        bytes.push((high * 16 + low) as u8);
        rest = &tail[2..];
    }
    String::from_utf8(bytes)
        .map_err(|_| AddressError::new(format!("the {what} is not UTF-8 once it is decoded")))
}
