//! Events of a cluster.

use std::{fmt, sync::Arc};

use crate::{address::Place, connection::event::NodeEvent};

/// Something that happened to a cluster.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ClusterEvent {
    /// A server is new in the map, and is being connected.
    Joined(Place),
    /// A server is no longer in the map. Its connection ends when its last call has.
    Left(Place),
    /// Something happened to one server.
    Node(Place, NodeEvent),
    /// No server could say what the map is, and why the last one could not. They are asked again; until then the old map
    /// holds.
    NotLearnt(Arc<str>),
}

/// The receiver of events. Called from tasks of the cluster: it may not block.
#[derive(Clone, Default)]
pub(crate) struct ClusterSink(Option<Arc<Sink>>);

type Sink = dyn Fn(&ClusterEvent) + Send + Sync;

impl ClusterSink {
    pub(crate) fn new(sink: impl Fn(&ClusterEvent) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(sink)))
    }

    pub(super) fn tell(&self, event: impl FnOnce() -> ClusterEvent) {
        if let Some(sink) = &self.0 {
            sink(&event());
        }
    }
}

impl fmt::Debug for ClusterSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "ClusterSink(..)"
        } else {
            "ClusterSink(none)"
        })
    }
}
