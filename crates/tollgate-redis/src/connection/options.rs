//! How a node behaves, and what it reports.

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::{Instant, timeout};
use tollgate_core::sync::{Mutex, lock};

use crate::{
    address::{Address, Place},
    connection::{
        breaker::{BreakerOptions, BreakerState},
        error::{ConnectError, ConnectErrorKind, caught, caught_call},
        stream::Security,
    },
    credentials::{Credentials, CredentialsProvider},
    error::SetupError,
};

/// How a node behaves. The defaults are for a server in the same network.
#[derive(Clone)]
pub(crate) struct NodeOptions {
    /// How long a call may take, with all that it waits for.
    pub(crate) deadline: Duration,
    /// How long a connection may take to be ready, with the log-in. By default it follows from the deadline.
    pub(crate) connect_timeout: Option<Duration>,
    /// How many calls may wait to be sent. More are refused at once.
    pub(crate) waiting: usize,
    /// How many calls may be sent and not yet answered. It is also how many a server that stood still may run afterwards
    /// when their callers no longer wait.
    pub(crate) unanswered: usize,
    /// How many checks may travel in one command, and so how long a command may keep the server from others: a check takes
    /// it some microseconds.
    pub(crate) together: usize,
    /// The longest pause between attempts to connect.
    pub(crate) longest_pause: Duration,
    /// How often sentinels are asked whether the master is still the master.
    pub(crate) sentinel_interval: Duration,
    /// What metrics and logs call the server.
    pub(crate) name: Arc<str>,
    /// In the name of the key that probes write.
    pub(crate) namespace: String,
    pub(crate) instance: String,
    /// What decides about the hash slot of that key, where it has to be in one of a server's own.
    pub(crate) probe_tag: Option<String>,
    /// Where servers are reached that sentinels and servers of a cluster name, if that is not where they say.
    pub(crate) address_map: Option<Arc<AddressMap>>,
    /// When calls are kept from the server.
    pub(crate) breaker: BreakerOptions,
    /// Who logs in, where it is not the address that says so.
    pub(crate) credentials: Option<Arc<dyn CredentialsProvider>>,
    /// What it gave last to any connection of a store, if that expires, with when it is to be replaced.
    pub(crate) last_credentials: Arc<Mutex<Option<(Credentials, Instant)>>>,
    /// How connections are encrypted, where the address asks for it.
    pub(crate) security: Option<Security>,
    /// Where events go.
    pub(crate) events: EventSink,
    /// Where the chance in pauses begins.
    pub(crate) seed: u64,
}

pub(crate) type AddressMap = dyn Fn(&str, u16) -> Option<(String, u16)> + Send + Sync;

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_millis(50),
            connect_timeout: None,
            waiting: 4096,
            unanswered: 1024,
            together: 32,
            longest_pause: Duration::from_secs(5),
            sentinel_interval: Duration::from_secs(5),
            name: "redis".into(),
            namespace: "tests".to_owned(),
            instance: "one".to_owned(),
            probe_tag: None,
            address_map: None,
            breaker: BreakerOptions::default(),
            credentials: None,
            last_credentials: Arc::default(),
            security: None,
            events: Arc::new(|_, _| {}),
            seed: fastrand::u64(..),
        }
    }
}

impl NodeOptions {
    /// Refuses an address that asks for encryption, unless it is said here whom to trust.
    pub(crate) fn check(&self, address: &Address) -> Result<(), SetupError> {
        if address.is_encrypted && self.security.is_none() {
            return Err(SetupError::address(
                "an encrypted connection needs to know whom to trust; give `RedisStoreBuilder::tls` a configuration of rustls, \
                 with the roots and the certificates that it says",
            ));
        }
        Ok(())
    }

    pub(super) fn tell(&self, event: &NodeEvent) {
        (self.events)(&self.name, event);
    }

    /// The connection is dropped when the server owes replies and sends nothing for this time: three deadlines, and at least half a
    /// second. A stall that is shorter costs no connection.
    pub(super) fn silence(&self) -> Duration {
        (self.deadline.saturating_mul(3)).max(Duration::from_millis(500))
    }

    /// Ten deadlines, and at least two seconds: enough for three round trips to a server that answers within a deadline.
    pub(super) fn connect_timeout(&self) -> Duration {
        let default = (self.deadline.saturating_mul(10)).max(Duration::from_secs(2));
        self.connect_timeout.unwrap_or(default)
    }

    /// A key of the namespace, so that a user who may touch its states may touch it. No state has its name, which does not end in
    /// the number of a format.
    pub(super) fn probe_key(&self) -> String {
        let (namespace, instance) = (&self.namespace, &self.instance);
        match &self.probe_tag {
            None => format!("{{{namespace}}}:probe:{instance}"),
            Some(tag) => format!("{namespace}:{{{tag}}}:probe:{instance}"),
        }
    }

    /// Where a server is reached that another one names so.
    pub(super) fn mapped(&self, host: String, port: u16) -> Place {
        let mapped = self.address_map.as_ref();
        // A map that panics has said nothing.
        let mapped = mapped.and_then(|map| caught_call(|| map(&host, port)).flatten());
        let (host, port) = mapped.unwrap_or((host, port));
        Place::Tcp(host, port)
    }
}

// Who logs in: the login of the address, or what a provider gives.

/// How long a provider may take. No request waits for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// However soon credentials expire, a connection logs in anew no more often than that.
const LEAST_LIFE: Duration = Duration::from_millis(100);

impl NodeOptions {
    /// Credentials that the provider gives now; `None` where those of the address are used for good.
    pub(super) async fn fetch_credentials(&self) -> Result<Option<Credentials>, ConnectError> {
        let Some(provider) = &self.credentials else {
            return Ok(None);
        };
        let failed = |why: &dyn fmt::Display| {
            let message = format!("no credentials: {why}");
            Err(ConnectError::new(ConnectErrorKind::Credentials, message))
        };
        let answer = caught(async { provider.credentials().await });
        match timeout(PATIENCE, answer).await {
            Ok(Some(Ok(credentials))) => {
                *lock(&self.last_credentials) = credentials
                    .expires_in
                    .and_then(|lifetime| Instant::now().checked_add(due(lifetime, 0)))
                    .map(|due| (credentials.clone(), due));
                Ok(Some(credentials))
            }
            Ok(Some(Err(error))) => failed(&error),
            // What it said is not repeated: it may be a password.
            Ok(None) => failed(&"the provider has panicked"),
            Err(_) => failed(&format_args!("none came within {PATIENCE:?}")),
        }
    }

    /// As [`fetch_credentials`](Self::fetch_credentials), for a connection that lasts for a question: what was given last will do while
    /// it is good.
    pub(super) async fn known_credentials(&self) -> Result<Option<Credentials>, ConnectError> {
        let last = lock(&self.last_credentials).clone();
        match last {
            Some((credentials, due)) if due > Instant::now() => Ok(Some(credentials)),
            _ => self.fetch_credentials().await,
        }
    }

    /// Credentials were refused, or it is unknown whether they were.
    pub(super) fn forget_credentials(&self) {
        *lock(&self.last_credentials) = None;
    }
}

/// When credentials of this lifetime are to be replaced: after three quarters of it, or up to an eighth earlier, so that not
/// all connections log in anew together.
pub(super) fn due(lifetime: Duration, seed: u64) -> Duration {
    let early = (seed % 128) as f64 / 1024.0;
    lifetime.mul_f64(0.75 - early).max(LEAST_LIFE)
}

// What happens to servers, and to calls on their way.

/// Something that happened to a server, or to the cluster that it is part of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NodeEvent {
    /// There is a connection to this server: where it is, and as what it has introduced itself.
    Connected(Arc<str>),
    /// No connection could be made, at which step, and why. It is tried again.
    NotConnected(ConnectErrorKind, Arc<str>),
    /// The connection is gone. It is made again.
    Lost {
        /// Why.
        why: Arc<str>,
        /// The server has closed it while no call was on it, as it does after a time without calls: no request is affected.
        was_idle: bool,
    },
    /// An open connection has logged in anew, before its credentials expire.
    LoggedInAnew,
    /// An open connection could not log in anew, and why. It is tried again.
    NotLoggedInAnew(Arc<str>),
    /// The breaker is in another state now.
    Breaker(BreakerState),
    /// The server is no longer in the map of its cluster. Its connection ends when its last call has.
    Left,
    /// No server could say what the map of the cluster is, and why the last one could not. They are asked again; until then the
    /// old map holds.
    NotLearnt(Arc<str>),
    /// A command is sent, whose first call has waited for this time.
    Queued(Duration),
    /// A command was answered, this long after it was sent.
    RoundTrip(Duration),
    /// A call was sent once more, for this reason. It had not run.
    Resent(Resent),
}

/// Called with the name of the server, as metrics and logs show it, and an event. Tasks of connections call it: it may not block.
pub(crate) type EventSink = Arc<dyn Fn(&str, &NodeEvent) + Send + Sync>;

/// Why a call was sent once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resent {
    /// The server did not know the script.
    WithScript,
    /// The server had refused a command for another call in it.
    Alone,
    /// Its hash slot is with another server.
    Moved,
    /// Its hash slot is on its way to another server.
    AskRedirect,
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::Ready};

    use super::*;

    #[test]
    fn credentials_are_replaced_while_a_quarter_of_their_life_is_left() {
        let hour = Duration::from_secs(3_600);
        for seed in 0..1_000 {
            let due = due(hour, seed);
            assert!(
                due <= hour.mul_f64(0.75) && due > hour.mul_f64(0.62),
                "{due:?}"
            );
        }
        assert_eq!(due(Duration::ZERO, 7), LEAST_LIFE);
    }

    #[tokio::test]
    async fn a_provider_that_panics_has_given_no_credentials() {
        let provider = || -> Ready<Result<Credentials, Infallible>> { panic!("it is a test") };
        let options = NodeOptions {
            credentials: Some(Arc::new(provider)),
            ..NodeOptions::default()
        };
        let why = options
            .fetch_credentials()
            .await
            .expect_err("it has panicked");
        assert_eq!(why.to_string(), "no credentials: the provider has panicked");
    }

    #[test]
    fn a_server_that_has_all_keys_is_probed_by_one_that_lies_where_the_states_do() {
        let mut options = NodeOptions::default();
        assert_eq!(options.probe_key(), "{tests}:probe:one");
        options.probe_tag = Some("7".to_owned());
        assert_eq!(options.probe_key(), "tests:{7}:probe:one");
    }

    #[test]
    fn a_map_that_panics_has_named_no_other_place() {
        let options = NodeOptions {
            address_map: Some(Arc::new(|host, port| {
                assert!(host != "inside", "it is a test");
                Some(("outside".to_owned(), port))
            })),
            ..NodeOptions::default()
        };
        let places = ["inside", "other"].map(|host| options.mapped(host.to_owned(), 6379));
        let expected = ["inside", "outside"].map(|host| Place::Tcp(host.to_owned(), 6379));
        assert_eq!(places, expected);
    }
}
