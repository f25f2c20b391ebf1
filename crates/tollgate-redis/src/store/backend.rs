//! One server, or a cluster of them.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    runtime::Handle,
    time::{Instant, Timeout, timeout_at},
};

use crate::{
    address::{Address, Target},
    connection::{
        breaker_state::BreakerState,
        call::Call,
        cluster::{routed::ClusterCall, router::Cluster},
        error::{CallError, CallErrorKind},
        node::Node,
        options::NodeOptions,
        request::Request,
        script::Script,
        value::Value,
    },
    error::SetupError,
    observe::Observer,
    script::call,
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

/// An answer on its way.
pub(super) enum Answer {
    One(Call),
    Cluster(ClusterCall),
    /// Nothing was sent: the time of its request was gone with what was asked before.
    Late,
    /// Of a request that has asked before: it ends when its time is gone, whatever waits for Redis before it.
    Within(Pin<Box<Timeout<Self>>>),
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

    /// Sends a call of the script that decides. In a cluster all its keys are in one slot.
    pub(super) fn send(&self, script: &Arc<Script>, call: &call::Call) -> Answer {
        let request =
            |slot| Request::checks(script, slot, call.keys(), call.args()).of_rules(call.rules());
        match self {
            Self::One { node, .. } => Answer::One(node.call(request(0))),
            Self::Cluster(cluster) => Answer::Cluster(cluster.send(call.keys(), request)),
        }
    }

    /// Runs another script.
    pub(super) fn run(
        &self,
        script: &Arc<Script>,
        keys: &[impl AsRef<[u8]>],
        args: &[impl AsRef<[u8]>],
    ) -> Answer {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let args: Vec<&[u8]> = args.iter().map(AsRef::as_ref).collect();
        match self {
            Self::One { node, .. } => Answer::One(node.call(Request::new(script, &keys, &args))),
            Self::Cluster(cluster) => Answer::Cluster(cluster.call(script, &keys, &args)),
        }
    }

    /// A slot of each server that decides.
    #[cfg(feature = "metrics")]
    pub(super) fn slots(&self) -> Vec<u16> {
        match self {
            Self::One { .. } => vec![0],
            Self::Cluster(cluster) => cluster.slots(),
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

impl Answer {
    /// Whether it has failed without having been queued.
    pub(super) fn is_refused(&self) -> bool {
        match self {
            Self::One(call) => call.is_refused(),
            Self::Cluster(call) => call.is_refused(),
            Self::Late => true,
            Self::Within(within) => within.get_ref().is_refused(),
        }
    }

    /// The same, which ends at `by`. The timer is that of `runtime`: whoever polls may have none.
    pub(super) fn within(self, by: Instant, runtime: &Handle) -> Self {
        let _entered = runtime.enter();
        Self::Within(Box::pin(timeout_at(by, self)))
    }
}

impl Future for Answer {
    type Output = Result<Value, CallError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::One(call) => Pin::new(call).poll(cx),
            Self::Cluster(call) => Pin::new(call).poll(cx),
            Self::Late => Poll::Ready(Err(CallError::new(
                CallErrorKind::Expired,
                "Redis was not asked: the time was gone with what was asked before",
            ))),
            Self::Within(within) => within.as_mut().poll(cx).map(|answer| {
                answer.unwrap_or_else(|_| {
                    let message = "Redis did not answer in time";
                    Err(CallError::new(CallErrorKind::Unknown, message))
                })
            }),
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
