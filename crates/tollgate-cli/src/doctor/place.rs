//! Where the servers of an address are.

use redis::{ProtocolVersion, RedisConnectionInfo, TlsCertificates};
use tollgate_redis::{Address, SetupError};

use crate::{failure::Failure, trust::TrustArgs};

/// The servers that an address names.
#[derive(Clone, Debug)]
pub(crate) enum Places {
    /// One server.
    Server(Place),
    /// Sentinels, and the name of the master, with its access.
    Sentinel {
        sentinels: Vec<Place>,
        master: String,
        access: Access,
    },
    /// Some servers of a cluster, and the access to all of them.
    Cluster { seeds: Vec<Place>, access: Access },
}

/// One server.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Where it listens.
    pub(crate) at: tollgate_redis::Place,
    pub(crate) access: Access,
}

/// How a server is spoken to.
#[derive(Clone, Default)]
pub(crate) struct Access {
    user: Option<String>,
    password: Option<String>,
    database: u32,
    /// Whom an encrypted connection trusts; `None`: it is not encrypted.
    pub(crate) trust: Option<TlsCertificates>,
}

impl std::fmt::Debug for Access {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access")
            .field("user", &self.user)
            .field("database", &self.database)
            .field("is_encrypted", &self.trust.is_some())
            .finish_non_exhaustive()
    }
}

impl Places {
    /// Reads an address that the store takes too.
    pub(crate) fn read(address: &str, trust: &TrustArgs) -> Result<Self, Failure> {
        let parsed: Result<Address, SetupError> = address.parse();
        let parsed = parsed.map_err(|wrong| Failure::usage(format!("--redis: {wrong}")))?;
        let trust = trust.certificates(&parsed)?;
        let parts = parsed.parts();
        let access = |[user, password]: [Option<String>; 2], database| Access {
            user,
            password,
            database,
            trust: trust.clone(),
        };
        let servers = access(parts.login, parts.database);
        let of = |access: &Access| -> Vec<Place> {
            let places = parts.places.iter();
            places
                .map(|at| Place {
                    at: at.clone(),
                    access: access.clone(),
                })
                .collect()
        };
        if let Some(master) = parts.master {
            return Ok(Self::Sentinel {
                sentinels: of(&access(parts.sentinel_login, 0)),
                master,
                access: servers,
            });
        }
        let mut places = of(&servers);
        match places.pop() {
            Some(place) if !parts.is_cluster => Ok(Self::Server(place)),
            last => {
                places.extend(last);
                Ok(Self::Cluster {
                    seeds: places,
                    access: servers,
                })
            }
        }
    }

    /// How the servers that decide are spoken to.
    pub(crate) fn access(&self) -> &Access {
        match self {
            Self::Server(place) => &place.access,
            Self::Sentinel { access, .. } | Self::Cluster { access, .. } => access,
        }
    }
}

impl Place {
    /// The server at a host and port, as another one writes them.
    pub(crate) fn tcp(access: &Access, host: &str) -> Self {
        let (host, port) = match host.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().unwrap_or(6_379)),
            None => (host, 6_379),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Self {
            at: tollgate_redis::Place::Tcp(host.to_owned(), port),
            access: access.clone(),
        }
    }

    /// Its host and port, or its path, without user and password.
    pub(crate) fn name(&self) -> String {
        match &self.at {
            tollgate_redis::Place::Tcp(host, port) if host.contains(':') => {
                format!("[{host}]:{port}")
            }
            tollgate_redis::Place::Tcp(host, port) => format!("{host}:{port}"),
            tollgate_redis::Place::Unix(path) => path.display().to_string(),
        }
    }
}

impl Access {
    pub(crate) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// As redis-rs takes it.
    pub(crate) fn info(&self) -> RedisConnectionInfo {
        let mut info = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP2)
            .set_db(i64::from(self.database));
        if let Some(user) = &self.user {
            info = info.set_username(user);
        }
        if let Some(password) = &self.password {
            info = info.set_password(password);
        }
        info
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(address: &str) -> Places {
        Places::read(address, &TrustArgs::default()).expect("a valid address")
    }

    #[test]
    fn each_form_of_an_address_is_taken_apart() {
        let Places::Server(place) = read("redis://ada:sesame@cache/3") else {
            panic!("it is one server");
        };
        assert_eq!(place.name(), "cache:6379");
        assert_eq!(
            (
                place.access.user(),
                place.access.password.is_some(),
                place.access.database
            ),
            (Some("ada"), true, 3)
        );
        assert!(!format!("{place:?}").contains("sesame"));
        let Places::Server(place) = read("redis://[::1]:7000") else {
            panic!("it is one server");
        };
        assert_eq!(
            (&*place.name(), place.access.password.is_some()),
            ("[::1]:7000", false)
        );
        let Places::Server(place) = read("unix:///run/redis.sock") else {
            panic!("it is one server");
        };
        assert_eq!(place.name(), "/run/redis.sock");
        for scheme in ["redis-sentinel", "redis+sentinel"] {
            let address = format!("{scheme}://:sesame@one,two:7/limits/2?sentinel_password=open");
            let Places::Sentinel {
                sentinels,
                master,
                access,
            } = read(&address)
            else {
                panic!("there are sentinels");
            };
            let names: Vec<_> = sentinels.iter().map(Place::name).collect();
            assert_eq!(
                (names, &*master, access.database),
                (
                    vec!["one:26379".to_owned(), "two:7".to_owned()],
                    "limits",
                    2
                )
            );
            let passwords = (&access.password, &sentinels[0].access.password);
            assert_eq!(
                passwords,
                (&Some("sesame".to_owned()), &Some("open".to_owned()))
            );
        }
        let Places::Cluster { seeds, access } = read("redis-cluster://one,two:7001") else {
            panic!("it is a cluster");
        };
        let names: Vec<_> = seeds.iter().map(Place::name).collect();
        assert_eq!(
            (names.join(" "), access.password.is_some()),
            ("one:6379 two:7001".to_owned(), false)
        );
    }

    #[test]
    fn a_server_that_another_one_names_is_found() {
        let access = Access::default();
        for (named, name) in [
            ("cache:7000", "cache:7000"),
            ("[::1]:7000", "[::1]:7000"),
            ("cache", "cache:6379"),
        ] {
            assert_eq!(Place::tcp(&access, named).name(), name);
        }
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_a_remedy() {
        let wrong = Places::read("http://cache", &TrustArgs::default()).expect_err("no Redis");
        assert!(
            wrong.message.contains("redis-sentinel"),
            "{}",
            wrong.message
        );
    }
}
