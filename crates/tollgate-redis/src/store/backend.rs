//! One server, or a cluster of them.

use std::{fmt, sync::Arc};

use crate::{
    address::{Address, Target},
    connection::{
        breaker::BreakerState,
        cluster::router::Cluster,
        command::{Command, Script},
        node::Node,
        options::NodeOptions,
        queue::AnswerFuture,
    },
    error::SetupError,
    observe::Observer,
    script::call::ScriptCall,
};

/// The servers that decide.
pub(super) enum Backend {
    /// One server, or the one that sentinels name.
    One {
        name: Arc<str>,
        node: Node,
    },
    Cluster(Cluster),
}

impl Backend {
    /// Starts to connect. Needs a tokio runtime.
    pub(super) fn start(
        address: Address,
        mut options: NodeOptions,
        observer: &Arc<Observer>,
    ) -> Result<Self, SetupError> {
        let observer = Arc::clone(observer);
        options.calls = observer.calls();
        options.events = Arc::new(move |node, event| observer.node(node, event));
        options.name = match &address.target {
            Target::Server(place) => place.to_string().into(),
            Target::Sentinel(sentinels) => sentinels.master.as_str().into(),
            Target::Cluster(_) => return Cluster::start(address, options).map(Self::Cluster),
        };
        let name = Arc::clone(&options.name);
        let node = Node::start(address, options)?;
        Ok(Self::One { name, node })
    }

    /// Sends a call of the script that decides. In a cluster all its keys are in one hash slot.
    pub(super) fn send(&self, script: &Arc<Script>, call: &ScriptCall) -> AnswerFuture {
        let command = |hash_slot| {
            let mut command = Command::checks(script, hash_slot, call.keys(), call.args());
            command.rules = call.rules;
            command
        };
        match self {
            Self::One { node, .. } => node.call(command(0)),
            Self::Cluster(cluster) => cluster.send(call.keys(), command),
        }
    }

    /// Runs another script.
    pub(super) fn run(
        &self,
        script: &Arc<Script>,
        keys: &[impl AsRef<[u8]>],
        args: &[impl AsRef<[u8]>],
    ) -> AnswerFuture {
        match self {
            Self::One { node, .. } => node.call(Command::new(script, keys, args)),
            Self::Cluster(cluster) => cluster.call(script, keys, args),
        }
    }

    /// A hash slot of each server that decides.
    #[cfg(feature = "metrics")]
    pub(super) fn hash_slots(&self) -> Vec<u16> {
        match self {
            Self::One { .. } => vec![0],
            Self::Cluster(cluster) => cluster.hash_slots(),
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    pub(super) fn is_connected(&self) -> bool {
        match self {
            Self::One { node, .. } => node.is_connected(),
            Self::Cluster(cluster) => cluster.is_connected(),
        }
    }

    /// Whether every request goes to the server: there is a connection, and no breaker keeps requests from it.
    pub(super) fn is_ready(&self) -> bool {
        let mut breakers = self.breakers().into_iter();
        self.is_connected() && breakers.all(|(_, state)| state == BreakerState::Closed)
    }

    /// Why it is not ready.
    pub(super) fn trouble(&self) -> Option<String> {
        match self {
            Self::One { node, .. } => node.trouble(),
            Self::Cluster(cluster) => cluster.trouble(),
        }
    }

    /// The servers that decide requests, and whether requests are kept from them.
    pub(super) fn breakers(&self) -> Vec<(String, BreakerState)> {
        match self {
            Self::One { name, node } => vec![(name.to_string(), node.breaker())],
            Self::Cluster(cluster) => {
                let nodes = cluster.breakers().into_iter();
                nodes
                    .map(|(place, state)| (place.to_string(), state))
                    .collect()
            }
        }
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One { name, node } => f.debug_map().entry(name, node).finish(),
            Self::Cluster(cluster) => cluster.fmt(f),
        }
    }
}
