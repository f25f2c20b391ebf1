//! What happens to calls on their way, to be counted.

use std::{fmt, sync::Arc, time::Duration};

/// Why a call was sent once more. It had not run.
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

/// Who counts. Called from the tasks that drive connections: it may not block.
pub(crate) trait Traffic: Send + Sync {
    /// A command is sent, whose first call has waited for this time.
    fn queued(&self, waited: Duration);

    /// A command was answered, this long after it was sent.
    fn round_trip(&self, took: Duration);

    fn resent(&self, why: Resent);
}

/// None by default.
#[derive(Clone, Default)]
pub(crate) struct TrafficSink(Option<Arc<dyn Traffic>>);

impl TrafficSink {
    #[cfg(any(test, feature = "metrics"))]
    pub(crate) fn new(traffic: Arc<dyn Traffic>) -> Self {
        Self(Some(traffic))
    }

    /// Whether anybody counts.
    pub(super) fn is_there(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn queued(&self, waited: Duration) {
        if let Some(traffic) = &self.0 {
            traffic.queued(waited);
        }
    }

    pub(super) fn round_trip(&self, took: Duration) {
        if let Some(traffic) = &self.0 {
            traffic.round_trip(took);
        }
    }

    pub(super) fn resent(&self, why: Resent) {
        if let Some(traffic) = &self.0 {
            traffic.resent(why);
        }
    }
}

impl fmt::Debug for TrafficSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "TrafficSink(..)"
        } else {
            "TrafficSink(none)"
        })
    }
}
