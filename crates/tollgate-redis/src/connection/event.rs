//! Events of a node.

use std::{fmt, sync::Arc};

use crate::connection::{breaker_state::BreakerState, connect_error::ConnectErrorKind, peer::Peer};

/// Something that happened to a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NodeEvent {
    /// There is a connection to this server.
    Connected(Arc<Peer>),
    /// No connection could be made, at which step, and why. It is tried again.
    NotConnected(ConnectErrorKind, Arc<str>),
    /// The connection is gone, and why. It is made again.
    Lost(Arc<str>),
    /// An open connection has logged in anew, before its credentials expire.
    LoggedInAnew,
    /// An open connection could not log in anew, and why. It is tried again.
    NotLoggedInAnew(Arc<str>),
    /// The breaker went from one state to another.
    Breaker {
        /// The state it left.
        from: BreakerState,
        /// The state it is in.
        to: BreakerState,
    },
}

/// The receiver of events. Called from the node's supervisor: it may not block.
#[derive(Clone, Default)]
pub(crate) struct EventSink(Option<Arc<Sink>>);

type Sink = dyn Fn(&NodeEvent) + Send + Sync;

impl EventSink {
    pub(crate) fn new(sink: impl Fn(&NodeEvent) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(sink)))
    }

    pub(super) fn tell(&self, event: &NodeEvent) {
        if let Some(sink) = &self.0 {
            sink(event);
        }
    }
}

impl fmt::Debug for EventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "EventSink(..)"
        } else {
            "EventSink(none)"
        })
    }
}
