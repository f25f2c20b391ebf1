//! The one place that is told what happened.

#[cfg(feature = "metrics")]
use crate::observe::meters::Meters;
use crate::{
    connection::{error::CallError, event::NodeEvent},
    observe::{events::Events, timer::Timer},
};

/// Tells metrics and events what happened. Without the features it is empty, and so are its calls.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    events: Events,
    #[cfg(feature = "metrics")]
    meters: Meters,
}

impl Observer {
    /// Redis has answered a call, or not.
    #[inline]
    pub(crate) fn called(&self, timer: Timer, error: Option<&CallError>) {
        #[cfg(feature = "metrics")]
        self.meters.called(timer, error);
        #[cfg(not(feature = "metrics"))]
        let _ = timer;
        if let Some(error) = error {
            self.events.failed(error);
        }
    }

    /// Redis has answered something that is no reply of the script.
    #[cold]
    pub(crate) fn misunderstood(&self) {
        #[cfg(feature = "metrics")]
        self.meters.misunderstood();
        self.events.misunderstood();
    }

    /// Units could not be given back, or taken later: the request is over, and nobody waits for it.
    pub(crate) fn settlement_lost(&self) {
        #[cfg(feature = "metrics")]
        self.meters.settlement_lost();
    }

    /// So many instances share the store now.
    pub(crate) fn instances(&self, count: u32) {
        #[cfg(feature = "metrics")]
        self.meters.instances(count);
        #[cfg(not(feature = "metrics"))]
        let _ = count;
    }

    /// Redis has not heard that this instance is there. No request waits for it, so that nothing else would tell of a right
    /// that is missing.
    pub(crate) fn heartbeat_failed(&self, error: &CallError) {
        self.events.failed(error);
    }

    /// A key was made for a rule with a cap on them.
    pub(crate) fn key_made(&self) {
        #[cfg(feature = "metrics")]
        self.meters.key_made();
    }

    /// A client beyond the cap went to the bucket that all such share.
    pub(crate) fn key_refused(&self) {
        #[cfg(feature = "metrics")]
        self.meters.key_refused();
    }

    /// So many units are in lots that this process holds, and so many it has admitted that Redis does not know of.
    pub(crate) fn held(&self, on_lease: u64, unreported: u64) {
        #[cfg(feature = "metrics")]
        self.meters.held(on_lease, unreported);
        #[cfg(not(feature = "metrics"))]
        let _ = (on_lease, unreported);
    }

    /// Nobody knows whether Redis has counted units that were reported.
    #[cold]
    pub(crate) fn units_given_up(&self, units: u64) {
        #[cfg(feature = "metrics")]
        self.meters.units_given_up(units);
        #[cfg(not(feature = "metrics"))]
        let _ = units;
    }

    /// Something happened to a connection.
    pub(crate) fn node(&self, node: &str, event: &NodeEvent) {
        #[cfg(feature = "metrics")]
        self.meters.node(node, event);
        self.events.node(node, event);
    }

    /// A server is no longer part of the cluster.
    pub(crate) fn node_left(&self, node: &str) {
        self.events.node_left(node);
    }

    /// No server could say what the cluster is.
    pub(crate) fn not_learnt(&self, why: &str) {
        self.events.not_learnt(why);
    }
}
