//! The connection of a node, as its requests find it and its supervisor sets it.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

use crate::connection::{
    breaker::Breaker, connect_error::ConnectError, error::CallError, options::NodeOptions,
    queue::Queue,
};

/// What requests and the supervisor both see.
pub(super) struct Shared {
    line: ArcSwap<Link>,
    pub(super) breaker: Arc<Breaker>,
    pub(super) options: NodeOptions,
}

/// The connection, as requests find it.
pub(super) enum Link {
    Connected(Arc<Queue>),
    Missing(CallError),
}

impl Shared {
    pub(super) fn new(options: NodeOptions, breaker: Breaker, missing: CallError) -> Self {
        Self {
            line: ArcSwap::from_pointee(Link::Missing(missing)),
            breaker: Arc::new(breaker),
            options,
        }
    }

    pub(super) fn line(&self) -> Guard<Arc<Link>> {
        self.line.load()
    }

    pub(super) fn set_connected(&self, queue: Arc<Queue>) {
        self.line.store(Arc::new(Link::Connected(queue)));
    }

    pub(super) fn set_missing(&self, why: &ConnectError) {
        self.line
            .store(Arc::new(Link::Missing(why.to_call_error())));
    }
}
