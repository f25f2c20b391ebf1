//! The numbers of a node.

use std::{fmt, time::Duration};

use crate::connection::{
    address_map::AddressMap, breaker::BreakerOptions, event::EventSink,
    host_resolver::HostResolver, log_in::CredentialsSource, probe_key::ProbeKey,
    security::Security, traffic::TrafficSink,
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
    /// The connection is dropped when the server owes replies and sends nothing for this time. By default it follows from the
    /// deadline.
    pub(crate) silence: Option<Duration>,
    /// The bound of the first pauses between attempts to connect. Later it is a part of the time without a connection.
    pub(crate) first_pause: Duration,
    /// The longest pause between attempts to connect.
    pub(crate) longest_pause: Duration,
    /// How often sentinels are asked whether the master is still the master.
    pub(crate) sentinel_interval: Duration,
    /// The key that probes write, for some seconds.
    pub(crate) probe_key: ProbeKey,
    /// The name that servers show for connections.
    pub(crate) client_name: Option<String>,
    /// Where the addresses of hosts come from.
    pub(crate) resolver: HostResolver,
    /// Where servers are reached that sentinels and servers of a cluster name.
    pub(crate) address_map: AddressMap,
    /// When calls are kept from the server.
    pub(crate) breaker: BreakerOptions,
    /// Who logs in, where it is not the address that says so.
    pub(crate) credentials: CredentialsSource,
    /// How connections are encrypted, where the address asks for it.
    pub(crate) security: Security,
    /// For how long one command may keep the server from others, as it is estimated.
    pub(crate) batch_time: Duration,
    /// Where events go.
    pub(crate) events: EventSink,
    /// What counts calls.
    pub(crate) traffic: TrafficSink,
    /// Where the chance in pauses begins.
    pub(crate) seed: u64,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_millis(50),
            connect_timeout: None,
            waiting: 4096,
            unanswered: 1024,
            together: 32,
            silence: None,
            first_pause: Duration::from_millis(50),
            longest_pause: Duration::from_secs(5),
            sentinel_interval: Duration::from_secs(5),
            probe_key: ProbeKey::new("tollgate", "any"),
            client_name: None,
            resolver: HostResolver::default(),
            address_map: AddressMap::default(),
            breaker: BreakerOptions::default(),
            credentials: CredentialsSource::default(),
            security: Security::default(),
            batch_time: Duration::from_micros(250),
            events: EventSink::default(),
            traffic: TrafficSink::default(),
            seed: fastrand::u64(..),
        }
    }
}

impl NodeOptions {
    /// The key that this instance probes with.
    #[must_use]
    pub(crate) fn probing_with(mut self, namespace: &str, instance: &str) -> Self {
        self.probe_key = ProbeKey::new(namespace, instance);
        self
    }

    /// Three deadlines, and at least half a second: a stall that is shorter costs no connection.
    pub(super) fn silence(&self) -> Duration {
        const LEAST: Duration = Duration::from_millis(500);
        let default = || self.deadline.saturating_mul(3).max(LEAST);
        self.silence.unwrap_or_else(default)
    }

    /// Ten deadlines, and at least two seconds: enough for three round trips to a server that answers within a deadline.
    pub(super) fn connect_timeout(&self) -> Duration {
        const LEAST: Duration = Duration::from_secs(2);
        let default = || self.deadline.saturating_mul(10).max(LEAST);
        self.connect_timeout.unwrap_or_else(default)
    }
}

impl fmt::Debug for NodeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeOptions")
            .field("deadline", &self.deadline)
            .field("connect_timeout", &self.connect_timeout)
            .field("waiting", &self.waiting)
            .field("unanswered", &self.unanswered)
            .field("together", &self.together)
            .field("silence", &self.silence())
            .finish_non_exhaustive()
    }
}
