//! The numbers of a cluster.

use std::{sync::Arc, time::Duration};

use crate::connection::{cluster::event::ClusterSink, options::NodeOptions};

/// How a cluster behaves.
#[derive(Clone)]
pub(crate) struct ClusterOptions {
    /// How each of its nodes behaves. The probe key gets a hash tag in a slot of the node, and the seed differs from node to
    /// node. Its events are those of the cluster.
    pub(crate) node: NodeOptions,
    /// How often the map is learnt anew while all is well. Each time is up to a quarter longer or shorter, so that many
    /// processes do not ask together.
    pub(crate) refresh: Duration,
    /// The same while there is no map, or no connection to a server of the map.
    pub(crate) hurry: Duration,
    /// Where events go.
    pub(crate) events: ClusterSink,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            node: NodeOptions::default(),
            refresh: Duration::from_secs(5),
            hurry: Duration::from_millis(500),
            events: Arc::new(|_| {}),
        }
    }
}
