//! Events of a cluster.

use std::sync::Arc;

use crate::{address::Place, connection::event::NodeEvent};

/// Something that happened to a cluster.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ClusterEvent {
    /// A server is no longer in the map. Its connection ends when its last call has.
    Left(Place),
    /// Something happened to one server.
    Node(Place, NodeEvent),
    /// No server could say what the map is, and why the last one could not. They are asked again; until then the old map
    /// holds.
    NotLearnt(Arc<str>),
}

/// The receiver of events. Called from tasks of the cluster: it may not block.
pub(crate) type ClusterSink = Arc<dyn Fn(&ClusterEvent) + Send + Sync>;
