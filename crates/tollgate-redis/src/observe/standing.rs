//! How a server stands: what is worth one line of a log when it is lost, and one when it is back.

use std::{collections::HashMap, sync::Arc};

use tokio::time::{Duration, Instant};
use tollgate_core::sync::{Mutex, lock};

use crate::connection::{breaker::BreakerState, options::NodeEvent};

/// The least time between two lines about mistakes: a busy service makes each of them with every request.
const PAUSE: Duration = Duration::from_secs(10);

/// How all servers stand.
#[derive(Debug, Default)]
pub(super) struct Standings {
    nodes: Mutex<HashMap<Box<str>, Standing>>,
    last_mistake: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Standing {
    /// Whether requests are without it.
    is_down: bool,
    is_connected: bool,
    is_open: bool,
    /// The server of the last line about a connection.
    peer: Option<Arc<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transition<'a> {
    Lost(&'a str),
    Found,
}

impl Standings {
    /// Whether a mistake may be logged now.
    pub(super) fn may_log(&self) -> bool {
        let now = Instant::now();
        let mut last = lock(&self.last_mistake);
        let may = last.is_none_or(|last| now.duration_since(last) >= PAUSE);
        if may {
            *last = Some(now);
        }
        may
    }

    /// Whether a connection to this server is logged: if it is another one than before.
    pub(super) fn is_new_peer(&self, node: &str, peer: &Arc<str>) -> bool {
        let mut nodes = lock(&self.nodes);
        let last = &mut nodes.entry(node.into()).or_default().peer;
        last.replace(Arc::clone(peer)).as_ref() != Some(peer)
    }

    /// What an event changes for requests.
    pub(super) fn transition<'a>(
        &self,
        node: &str,
        event: &'a NodeEvent,
    ) -> Option<Transition<'a>> {
        let mut nodes = lock(&self.nodes);
        if *event == NodeEvent::Left {
            nodes.remove(node);
            return None;
        }
        nodes.entry(node.into()).or_default().transition(event)
    }
}

impl Standing {
    /// One when requests begin to be without a server, and one when they are not any more, however often it was tried in between.
    fn transition<'a>(&mut self, event: &'a NodeEvent) -> Option<Transition<'a>> {
        let why = match event {
            NodeEvent::Connected(_) => {
                self.is_connected = true;
                None
            }
            // Another connection is made at once. If it cannot be, that is told.
            NodeEvent::Lost { was_idle: true, .. } => {
                self.is_connected = false;
                None
            }
            NodeEvent::NotConnected(_, why) | NodeEvent::Lost { why, .. } => {
                self.is_connected = false;
                Some(&**why)
            }
            NodeEvent::Breaker(to) => {
                self.is_open = *to != BreakerState::Closed;
                self.is_open.then_some("too many calls have failed")
            }
            // All goes on as it was.
            _ => return None,
        };
        match why {
            Some(why) if !self.is_down => {
                self.is_down = true;
                Some(Transition::Lost(why))
            }
            None if self.is_down && self.is_connected && !self.is_open => {
                self.is_down = false;
                Some(Transition::Found)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::error::ConnectErrorKind;

    #[test]
    fn a_lost_server_is_logged_once_and_its_return_once() {
        let connected = NodeEvent::Connected("localhost:6379".into());
        let refused = NodeEvent::NotConnected(ConnectErrorKind::Tcp, "refused".into());
        let lost = |was_idle| NodeEvent::Lost {
            why: "it was closed".into(),
            was_idle,
        };
        let ramping = BreakerState::Ramping { percent: 10 };
        let breaker = [BreakerState::Open, ramping, BreakerState::Closed].map(NodeEvent::Breaker);
        let [open, ramping, closed] = &breaker;
        let mut standing = Standing::default();
        for (event, is_found) in [
            (&connected, None),
            // An idle connection says nothing, and the next one neither.
            (&lost(true), None),
            (&connected, None),
            (&lost(false), Some(false)),
            (open, None),
            (&refused, None),
            // Connected, and not trusted yet.
            (&connected, None),
            (ramping, None),
            (closed, Some(true)),
            // The breaker opens while the connection is up.
            (open, Some(false)),
            (closed, Some(true)),
        ] {
            let transition = standing.transition(event);
            let found = transition.map(|transition| transition == Transition::Found);
            assert_eq!(found, is_found, "{event:?}");
        }
    }
}
