//! The background tasks of a store.

use crate::store::heartbeat::Heartbeat;
#[cfg(feature = "metrics")]
use crate::store::{gauges::Gauges, namespace_size::NamespaceSize};

/// The tasks of a store, which end when this is dropped.
#[derive(Debug)]
pub(super) struct StoreTasks {
    pub(super) _heartbeat: Option<Heartbeat>,
    #[cfg(feature = "metrics")]
    pub(super) _gauges: Gauges,
    #[cfg(feature = "metrics")]
    pub(super) _namespace_size: Option<NamespaceSize>,
}
