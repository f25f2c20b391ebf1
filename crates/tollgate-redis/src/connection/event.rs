//! What happens to a node, and to its calls on their way.

use std::{sync::Arc, time::Duration};

use crate::connection::{breaker_state::BreakerState, connect_error::ConnectErrorKind, peer::Peer};

/// Something that happened to a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NodeEvent {
    /// There is a connection to this server.
    Connected(Arc<Peer>),
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
    /// The breaker went from one state to another.
    Breaker {
        /// The state it left.
        from: BreakerState,
        /// The state it is in.
        to: BreakerState,
    },
}

/// The receiver of events. Called from the node's supervisor: it may not block.
pub(crate) type EventSink = Arc<dyn Fn(&NodeEvent) + Send + Sync>;

/// Something that happened to a call.
#[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "metrics read it"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallEvent {
    /// A command is sent, whose first call has waited for this time.
    Queued(Duration),
    /// A command was answered, this long after it was sent.
    RoundTrip(Duration),
    /// A call was sent once more, for this reason. It had not run.
    Resent(Resent),
}

/// Why a call was sent once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resent {
    /// The server did not know the script.
    WithScript,
    /// The server had refused a command for another call in it.
    Alone,
    /// Its slot is with another server.
    Moved,
    /// Its slot is on its way to another server.
    AskRedirect,
}

/// What counts calls, if anything does. Called from the tasks that drive connections: it may not block.
pub(crate) type CallSink = Option<Arc<dyn Fn(CallEvent) + Send + Sync>>;
