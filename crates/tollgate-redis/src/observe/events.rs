//! Events: one when Redis is lost and one when it is back; mistakes of the set-up now and then. Never a key or a password.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

#[cfg(feature = "tracing")]
use tokio::time::Instant;

use crate::connection::{
    breaker_state::BreakerState,
    error::{CallError, CallErrorKind},
    event::NodeEvent,
    peer::Peer,
};

/// The least time between two events about mistakes: a busy service makes each of them with every request.
#[cfg(feature = "tracing")]
const PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Events {
    nodes: Mutex<HashMap<Box<str>, Standing>>,
    #[cfg(feature = "tracing")]
    last_mistake: Mutex<Option<Instant>>,
}

/// How a server stands.
#[derive(Clone, Debug, Default)]
struct Standing {
    /// Whether requests are without it.
    is_down: bool,
    is_connected: bool,
    is_open: bool,
    /// The server of the last event about a connection, and when it was.
    #[cfg(feature = "tracing")]
    peer: Option<(Instant, String)>,
}

impl Standing {
    /// One event when requests begin to be without a server, and one when they are not any more, however often it was
    /// tried in between.
    fn audit_replies<'a>(&mut self, event: &'a NodeEvent) -> Option<Transition<'a>> {
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
            // The connection goes on as it was.
            NodeEvent::LoggedInAnew | NodeEvent::NotLoggedInAnew(_) => return None,
            NodeEvent::Breaker { to, .. } => {
                self.is_open = *to != BreakerState::Closed;
                self.is_open.then_some("too many calls have failed")
            }
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transition<'a> {
    Lost(&'a str),
    Found,
}

impl Events {
    pub(super) fn node(&self, node: &str, event: &NodeEvent) {
        if let NodeEvent::Connected(peer) = event {
            self.connected(node, peer);
        }
        if let NodeEvent::NotLoggedInAnew(why) = event
            && self.may_log()
        {
            not_logged_in_anew(node, why);
        }
        let reported = {
            let mut nodes = lock(&self.nodes);
            match nodes.get_mut(node) {
                Some(standing) => standing.audit_replies(event),
                None => nodes.entry(node.into()).or_default().audit_replies(event),
            }
        };
        match reported {
            Some(Transition::Lost(why)) => lost(node, why),
            Some(Transition::Found) => found(node),
            None => {}
        }
    }

    /// At most once in a while for each server, unless it is another one than before.
    fn connected(&self, node: &str, peer: &Peer) {
        #[cfg(feature = "tracing")]
        {
            let (now, text) = (Instant::now(), peer.to_string());
            {
                let mut nodes = lock(&self.nodes);
                let standing = nodes.entry(node.into()).or_default();
                let reported = standing.peer.as_ref();
                if reported
                    .is_some_and(|(at, peer)| *peer == text && now.duration_since(*at) < PAUSE)
                {
                    return;
                }
                standing.peer = Some((now, text));
            }
            tracing::info!(
                target: "tollgate",
                node,
                address = %peer.place,
                server = peer.server,
                version = peer.version,
                role = peer.role,
                protocol = peer.protocol,
                "connected to Redis"
            );
        }
        #[cfg(not(feature = "tracing"))]
        let _ = (node, peer);
    }

    pub(super) fn node_left(&self, node: &str) {
        lock(&self.nodes).remove(node);
    }

    pub(super) fn not_learnt(&self, why: &str) {
        if self.may_log() {
            #[cfg(feature = "tracing")]
            tracing::warn!(
                target: "tollgate",
                why,
                "no server of the cluster reported its topology; the last known one stays in use (logged at most every 10 s)"
            );
        }
        #[cfg(not(feature = "tracing"))]
        let _ = why;
    }

    /// Logs calls that fail until the server's configuration changes.
    pub(super) fn failed(&self, error: &CallError) {
        let lasts = matches!(
            error.kind(),
            CallErrorKind::Misconfigured | CallErrorKind::NotWritable
        );
        if lasts && self.may_log() {
            #[cfg(feature = "tracing")]
            tracing::error!(
                target: "tollgate",
                %error,
                "Redis refuses a call, and will until this is changed (logged at most every 10 s)"
            );
        }
    }

    /// Seldom: it is said by who waits how often.
    pub(super) fn waits(&self, since: Duration, why: &str) {
        #[cfg(feature = "tracing")]
        tracing::warn!(target: "tollgate", ?since, why, "the start still waits for Redis");
        #[cfg(not(feature = "tracing"))]
        let _ = (since, why);
    }

    /// Once for each time that a rule is bound.
    pub(super) fn exact(&self, rule: &str, plan: Option<&str>, why: &str) {
        #[cfg(feature = "tracing")]
        tracing::warn!(
            target: "tollgate",
            rule,
            plan,
            why,
            "the rule is counted exactly: its quota does not support the configured consistency"
        );
        #[cfg(not(feature = "tracing"))]
        let _ = (rule, plan, why);
    }

    /// Once for each time that it begins.
    pub(super) fn quotas_differ(&self, rule: &str, here: &str, elsewhere: &str, since: Duration) {
        #[cfg(feature = "tracing")]
        tracing::error!(
            target: "tollgate",
            rule,
            here,
            elsewhere,
            ?since,
            "two quotas count against one state: give the rule the same quota in every service of the namespace, or \
             another name in one of them"
        );
        #[cfg(not(feature = "tracing"))]
        let _ = (rule, here, elsewhere, since);
    }

    /// Once for each time that it begins.
    pub(super) fn keys_differ(&self, here: &str, elsewhere: &str) {
        #[cfg(feature = "tracing")]
        tracing::error!(
            target: "tollgate",
            here,
            elsewhere,
            "an instance of the namespace writes the keys of clients by another secret or partition, so that each client has two \
             budgets: give all of them the same, or change the secret in the three steps of `Keys`"
        );
        #[cfg(not(feature = "tracing"))]
        let _ = (here, elsewhere);
    }

    pub(super) fn misunderstood(&self) {
        if self.may_log() {
            #[cfg(feature = "tracing")]
            tracing::error!(
                target: "tollgate",
                "Redis sent a reply that is not the script's; is it behind a proxy? (logged at most every 10 s)"
            );
        }
    }

    #[cfg(feature = "tracing")]
    fn may_log(&self) -> bool {
        let now = Instant::now();
        let mut last = lock(&self.last_mistake);
        let may = last.is_none_or(|last| now.duration_since(last) >= PAUSE);
        if may {
            *last = Some(now);
        }
        may
    }

    #[cfg(not(feature = "tracing"))]
    fn may_log(&self) -> bool {
        false
    }
}

fn lost(node: &str, why: &str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        target: "tollgate",
        node,
        why,
        "Redis is unavailable; each rule applies its `on_store_error`"
    );
    #[cfg(not(feature = "tracing"))]
    let _ = (node, why);
}

fn not_logged_in_anew(node: &str, why: &str) {
    #[cfg(feature = "tracing")]
    tracing::error!(
        target: "tollgate",
        node,
        why,
        "a connection could not log in anew; it goes on until the server ends it, and tries again (logged at most every 10 s)"
    );
    #[cfg(not(feature = "tracing"))]
    let _ = (node, why);
}

fn found(node: &str) {
    #[cfg(feature = "tracing")]
    tracing::info!(target: "tollgate", node, "Redis decides again");
    #[cfg(not(feature = "tracing"))]
    let _ = node;
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change under these locks is one step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        address::Place,
        connection::{connect_error::ConnectErrorKind, peer::Peer},
    };

    fn connected() -> NodeEvent {
        let place = Place::Tcp("localhost".to_owned(), 6379);
        NodeEvent::Connected(Arc::new(Peer {
            place,
            server: "redis".to_owned(),
            version: "7.0.15".to_owned(),
            role: "master".to_owned(),
            protocol: 3,
        }))
    }

    fn breaker(from: BreakerState, to: BreakerState) -> NodeEvent {
        NodeEvent::Breaker { from, to }
    }

    #[test]
    fn a_lost_server_is_logged_once_and_its_return_once() {
        let mut standing = Standing::default();
        let mut hear = |event: NodeEvent| {
            standing
                .audit_replies(&event)
                .map(|reported| reported == Transition::Found)
        };
        let (returned, open) = (BreakerState::Closed, BreakerState::Open);
        assert_eq!(hear(connected()), None);
        let lost = |was_idle| NodeEvent::Lost {
            why: "it was closed".into(),
            was_idle,
        };
        // An idle connection says nothing, and the next one neither.
        assert_eq!((hear(lost(true)), hear(connected())), (None, None));
        assert_eq!(hear(lost(false)), Some(false));
        assert_eq!(hear(breaker(returned, open)), None);
        assert_eq!(
            hear(NodeEvent::NotConnected(
                ConnectErrorKind::Tcp,
                "refused".into()
            )),
            None
        );
        // Connected, and not trusted yet.
        assert_eq!(hear(connected()), None);
        assert_eq!(
            hear(breaker(open, BreakerState::Ramping { percent: 10 })),
            None
        );
        assert_eq!(
            hear(breaker(BreakerState::Ramping { percent: 50 }, returned)),
            Some(true)
        );
        // The breaker opens while the connection is up.
        assert_eq!(hear(breaker(returned, open)), Some(false));
        assert_eq!(hear(breaker(open, returned)), Some(true));
    }
}
