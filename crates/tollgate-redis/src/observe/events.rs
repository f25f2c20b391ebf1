//! Events: one when Redis is lost and one when it is back; mistakes of the set-up now and then. Never a key or a password.

use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(feature = "tracing")]
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

#[cfg(feature = "tracing")]
use tokio::time::Instant;

use crate::connection::{
    breaker::BreakerState,
    error::{CallError, CallErrorKind},
    event::NodeEvent,
};

/// The least time between two events about mistakes: a busy service makes each of them with every request.
#[cfg(feature = "tracing")]
const PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Events {
    /// Whether requests are without Redis.
    is_down: AtomicBool,
    is_connected: AtomicBool,
    is_open: AtomicBool,
    #[cfg(feature = "tracing")]
    last_mistake: Mutex<Option<Instant>>,
}

impl Events {
    /// One event when requests begin to be without Redis, and one when they are not any more, however often it was tried
    /// in between.
    pub(super) fn node(&self, event: &NodeEvent) {
        let why = match event {
            NodeEvent::Connected => {
                self.is_connected.store(true, Ordering::Relaxed);
                None
            }
            NodeEvent::NotConnected(why) | NodeEvent::Lost(why) => {
                self.is_connected.store(false, Ordering::Relaxed);
                Some(&**why)
            }
            NodeEvent::Breaker { to, .. } => {
                let is_open = *to != BreakerState::Closed;
                self.is_open.store(is_open, Ordering::Relaxed);
                is_open.then_some("too many calls have failed")
            }
        };
        match why {
            Some(why) => {
                if !self.is_down.swap(true, Ordering::Relaxed) {
                    lost(why);
                }
            }
            None => {
                let is_well = self.is_connected.load(Ordering::Relaxed)
                    && !self.is_open.load(Ordering::Relaxed);
                if is_well && self.is_down.swap(false, Ordering::Relaxed) {
                    found();
                }
            }
        }
    }

    /// Tells of calls that will fail until somebody changes something.
    pub(super) fn failed(&self, error: &CallError) {
        if error.kind() == CallErrorKind::Misconfigured && self.may_tell() {
            #[cfg(feature = "tracing")]
            tracing::error!(
                target: "tollgate",
                %error,
                "Redis refuses to decide, and will until this is changed (told at most every 10 s)"
            );
        }
    }

    pub(super) fn misunderstood(&self) {
        if self.may_tell() {
            #[cfg(feature = "tracing")]
            tracing::error!(
                target: "tollgate",
                "Redis answered something else than the script does; is it behind a proxy? (told at most every 10 s)"
            );
        }
    }

    #[cfg(feature = "tracing")]
    fn may_tell(&self) -> bool {
        let now = Instant::now();
        let mut last = self
            .last_mistake
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let may = last.is_none_or(|last| now.duration_since(last) >= PAUSE);
        if may {
            *last = Some(now);
        }
        may
    }

    #[cfg(not(feature = "tracing"))]
    fn may_tell(&self) -> bool {
        false
    }
}

fn lost(why: &str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        target: "tollgate",
        why,
        "Redis cannot be asked; each rule answers as it says for a store failure"
    );
    #[cfg(not(feature = "tracing"))]
    let _ = why;
}

fn found() {
    #[cfg(feature = "tracing")]
    tracing::info!(target: "tollgate", "Redis decides again");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker(from: BreakerState, to: BreakerState) -> NodeEvent {
        NodeEvent::Breaker { from, to }
    }

    #[test]
    fn it_is_down_from_the_first_loss_until_it_is_connected_and_trusted() {
        let events = Events::default();
        let is_down = |event: &NodeEvent| {
            events.node(event);
            events.is_down.load(Ordering::Relaxed)
        };
        let (closed, open) = (BreakerState::Closed, BreakerState::Open);
        assert!(!is_down(&NodeEvent::Connected));
        assert!(is_down(&NodeEvent::Lost("it was closed".into())));
        assert!(is_down(&breaker(closed, open)));
        assert!(is_down(&NodeEvent::NotConnected("refused".into())));
        // Connected, and not trusted yet.
        assert!(is_down(&NodeEvent::Connected));
        assert!(is_down(&breaker(
            open,
            BreakerState::Ramping { percent: 10 }
        )));
        assert!(!is_down(&breaker(
            BreakerState::Ramping { percent: 50 },
            closed
        )));
        // A breaker that opens while the connection stands.
        assert!(is_down(&breaker(closed, open)));
        assert!(!is_down(&breaker(open, closed)));
    }
}
