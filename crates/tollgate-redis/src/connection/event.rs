//! What happens to servers, and to calls on their way.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    address::Place,
    connection::{breaker::BreakerState, error::ConnectErrorKind, resp::Value},
};

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
    /// Its hash slot is with another server.
    Moved,
    /// Its hash slot is on its way to another server.
    AskRedirect,
}

/// What counts calls, if anything does. Called from the tasks that drive connections: it may not block.
pub(crate) type CallSink = Option<Arc<dyn Fn(CallEvent) + Send + Sync>>;

// Who is at the other end of a connection.

/// A server, as it has introduced itself. What it does not say is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) place: Place,
    /// `redis`, `valkey`, …
    pub(crate) server: String,
    pub(crate) version: String,
    /// `master` or `replica`.
    pub(crate) role: String,
}

impl Peer {
    /// What it has answered to `HELLO 2`: names and values, alternating.
    pub(crate) fn of_hello(place: Place, answer: &Value) -> Self {
        let pairs = answer.list().unwrap_or_default().chunks_exact(2);
        let text = |name: &str| {
            let mut pairs = pairs.clone();
            let pair = pairs.find(|pair| pair[0].text() == Some(name));
            let text = pair.and_then(|pair| pair[1].text()).unwrap_or_default();
            text.to_owned()
        };
        Self {
            server: text("server"),
            version: text("version"),
            role: text("role"),
            place,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.place)?;
        for word in [&self.server, &self.version, &self.role] {
            if !word.is_empty() {
                write!(f, " {word}")?;
            }
        }
        Ok(())
    }
}
