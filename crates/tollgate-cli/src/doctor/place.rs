//! Where the servers of an address are.

use tollgate_redis::{Address, SetupError};

use crate::failure::Failure;

/// The servers that an address names, each as the client of this program takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Places {
    /// One server.
    Server(Place),
    /// Sentinels, and the name of the master.
    Sentinel {
        sentinels: Vec<Place>,
        master: String,
        /// `user:password@` of the master, and its database.
        login: String,
        database: String,
    },
    /// Some servers of a cluster.
    Cluster { seeds: Vec<Place>, login: String },
}

/// One server.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Without user and password.
    pub(crate) name: String,
    /// As redis-rs takes it; with the password.
    pub(crate) url: String,
}

impl std::fmt::Debug for Place {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl Places {
    /// Reads an address that the store takes too.
    pub(crate) fn read(address: &str) -> Result<Self, Failure> {
        let (scheme, rest) = address.split_once("://").unwrap_or(("redis", address));
        if scheme.starts_with("rediss") {
            return Err(Failure::usage(
                "--redis: this command does not encrypt; run it where the server can be reached without, or through a tunnel \
                 such as `stunnel`",
            ));
        }
        let parsed: Result<Address, SetupError> = address.parse();
        parsed.map_err(|wrong| Failure::usage(format!("--redis: {wrong}")))?;
        if scheme.starts_with("unix") || scheme == "redis+unix" {
            let (login, path) = split_login(rest);
            let name = path.split('?').next().unwrap_or_default().to_owned();
            let url = format!("unix://{path}{}", unix_login(&login, path));
            return Ok(Self::Server(Place { name, url }));
        }
        let (login, rest) = split_login(rest);
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        match scheme {
            "redis-sentinel" => {
                let (master, database) = path.split_once('/').unwrap_or((path, "0"));
                let parameter = |name: &str| {
                    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
                    pairs
                        .find(|(known, _)| *known == name)
                        .map(|(_, value)| value)
                };
                let user = parameter("sentinel_username").unwrap_or_default();
                let sentinel_login = match parameter("sentinel_password") {
                    Some(password) => format!("{user}:{password}@"),
                    None => String::new(),
                };
                let hosts = hosts.split(',').map(|host| with_port(host, 26_379));
                Ok(Self::Sentinel {
                    sentinels: hosts
                        .map(|host| Place::tcp(&sentinel_login, &host, ""))
                        .collect(),
                    master: master.to_owned(),
                    login,
                    database: database.to_owned(),
                })
            }
            "redis-cluster" => Ok(Self::Cluster {
                seeds: hosts
                    .split(',')
                    .map(|host| Place::tcp(&login, &with_port(host, 6_379), ""))
                    .collect(),
                login,
            }),
            _ => Ok(Self::Server(Place::tcp(
                &login,
                &with_port(hosts, 6_379),
                path,
            ))),
        }
    }

    /// Whether a user or a password is given.
    pub(crate) fn has_login(&self) -> bool {
        match self {
            Self::Server(place) => place.url.contains('@') || place.url.contains("pass="),
            Self::Sentinel { login, .. } | Self::Cluster { login, .. } => !login.is_empty(),
        }
    }
}

impl Place {
    /// A host with its port, behind `user:password@`.
    pub(crate) fn tcp(login: &str, host: &str, database: &str) -> Self {
        Self {
            name: host.to_owned(),
            url: format!("redis://{login}{host}/{database}"),
        }
    }
}

fn split_login(rest: &str) -> (String, &str) {
    match rest.rsplit_once('@') {
        Some((login, rest)) => (format!("{login}@"), rest),
        None => (String::new(), rest),
    }
}

/// redis-rs has the user of a socket among the parameters.
fn unix_login(login: &str, path: &str) -> String {
    let Some((user, password)) = login.trim_end_matches('@').split_once(':') else {
        return String::new();
    };
    let mark = if path.contains('?') { '&' } else { '?' };
    match user {
        "" => format!("{mark}pass={password}"),
        _ => format!("{mark}user={user}&pass={password}"),
    }
}

fn with_port(host: &str, port: u16) -> String {
    let has_port = match host.rsplit_once(']') {
        Some((_, rest)) => rest.starts_with(':'),
        None => host.contains(':'),
    };
    if has_port {
        host.to_owned()
    } else {
        format!("{host}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(address: &str) -> Places {
        Places::read(address).expect("a valid address")
    }

    #[test]
    fn each_form_of_an_address_is_taken_apart() {
        let Places::Server(place) = read("redis://ada:sesame@cache/3") else {
            panic!("it is one server");
        };
        assert_eq!(
            (&*place.name, &*place.url),
            ("cache:6379", "redis://ada:sesame@cache:6379/3")
        );
        assert_eq!(format!("{place:?}"), "cache:6379");
        let Places::Server(place) = read("redis://[::1]:7000") else {
            panic!("it is one server");
        };
        assert_eq!(place.name, "[::1]:7000");
        let Places::Sentinel {
            sentinels,
            master,
            login,
            database,
        } = read("redis-sentinel://:sesame@one,two:7/limits/2?sentinel_password=open")
        else {
            panic!("there are sentinels");
        };
        let names: Vec<_> = sentinels.iter().map(|place| &*place.name).collect();
        assert_eq!(
            (names, &*master, &*database),
            (vec!["one:26379", "two:7"], "limits", "2")
        );
        assert_eq!(
            (&*login, &*sentinels[0].url),
            (":sesame@", "redis://:open@one:26379/")
        );
        let Places::Cluster { seeds, login } = read("redis-cluster://one,two:7001") else {
            panic!("it is a cluster");
        };
        assert_eq!((seeds.len(), &*seeds[1].name, &*login), (2, "two:7001", ""));
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_a_remedy() {
        for (address, word) in [
            ("rediss://cache", "tunnel"),
            ("http://cache", "redis-sentinel"),
        ] {
            let wrong = Places::read(address).expect_err("it cannot be used");
            assert!(wrong.message.contains(word), "{}", wrong.message);
        }
    }
}
