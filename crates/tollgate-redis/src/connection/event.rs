//! What happens to servers, and to calls on their way.

use std::{sync::Arc, time::Duration};

use crate::connection::{breaker_state::BreakerState, connect_error::ConnectErrorKind, peer::Peer};

/// Something that happened to a server, or to the cluster that it is part of.
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
    /// The breaker is in another state now.
    Breaker(BreakerState),
    /// The server is no longer in the map of its cluster. Its connection ends when its last call has.
    Left,
    /// No server could say what the map of the cluster is, and why the last one could not. They are asked again; until then the
    /// old map holds.
    NotLearnt(Arc<str>),
}

/// Is told of events, with what metrics and logs call the server. Called from tasks of connections: it may not block.
pub(crate) type EventSink = Arc<dyn Fn(&str, &NodeEvent) + Send + Sync>;

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
