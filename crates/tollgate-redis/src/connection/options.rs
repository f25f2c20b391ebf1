//! The numbers of a node.

use std::{fmt, time::Duration};

use crate::connection::{
    breaker::BreakerSettings, event::EventSink, log_in::CredentialsSource, probe_key::ProbeKey,
    security::Security,
};

/// How a node behaves. The defaults are for a server in the same network.
#[derive(Clone)]
pub(crate) struct NodeOptions {
    /// How long a call may take, with all that it waits for.
    pub(crate) deadline: Duration,
    /// How long a connection may take to be ready, with the log-in.
    pub(crate) connect_timeout: Duration,
    /// How many calls may wait to be sent. More are refused at once.
    pub(crate) waiting: usize,
    /// How many calls may be sent and not yet answered. It is also how many a server that stood still may run afterwards
    /// although nobody waits for them any more.
    pub(crate) unanswered: usize,
    /// How many checks may travel in one command, and so how long a command may keep the server from others: a check takes
    /// it some microseconds.
    pub(crate) together: usize,
    /// After this many deadlines in which the server was asked and said nothing the connection is dropped.
    pub(crate) silent_deadlines: u32,
    /// The bound of the first pause between attempts to connect. Each attempt doubles it.
    pub(crate) first_pause: Duration,
    /// The longest pause between attempts to connect.
    pub(crate) longest_pause: Duration,
    /// How often sentinels are asked whether the master is still the master.
    pub(crate) sentinel_interval: Duration,
    /// The key that probes write, for some seconds.
    pub(crate) probe_key: ProbeKey,
    /// When calls are kept from the server.
    pub(crate) breaker: BreakerSettings,
    /// Who logs in, where it is not the address that says so.
    pub(crate) credentials: CredentialsSource,
    /// How connections are encrypted, where the address asks for it.
    pub(crate) security: Security,
    /// Who is told what happens.
    pub(crate) events: EventSink,
    /// Where the chance in pauses begins.
    pub(crate) seed: u64,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_millis(50),
            connect_timeout: Duration::from_millis(500),
            waiting: 4096,
            unanswered: 1024,
            together: 32,
            silent_deadlines: 3,
            first_pause: Duration::from_millis(50),
            longest_pause: Duration::from_secs(5),
            sentinel_interval: Duration::from_secs(5),
            probe_key: ProbeKey::new("tollgate", "any"),
            breaker: BreakerSettings::default(),
            credentials: CredentialsSource::default(),
            security: Security::default(),
            events: EventSink::default(),
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

    pub(super) fn silence(&self) -> Duration {
        self.deadline.saturating_mul(self.silent_deadlines.max(1))
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
            .field("silent_deadlines", &self.silent_deadlines)
            .finish_non_exhaustive()
    }
}
