//! One server.

use std::sync::Arc;

use tokio::{task::AbortHandle, time::Instant};

use crate::{
    address::Address,
    connection::{
        breaker::Breaker,
        breaker::BreakerState,
        command::Command,
        error::{CallError, CallErrorKind, ConnectError, ConnectErrorKind},
        event::NodeEvent,
        options::NodeOptions,
        queue::{AnswerFuture, Link, NodeState, QueuedCommand},
        supervisor::supervise,
    },
    error::SetupError,
};

/// A server and the one connection to it, which a task of this node makes, minds, and makes anew.
///
/// It may be started before its server is there. Dropping it ends the task and closes the connection.
pub(crate) struct Node {
    shared: Arc<NodeState>,
    supervisor: AbortHandle,
}

impl Node {
    /// Starts to connect.
    ///
    /// # Errors
    ///
    /// An address that asks for encryption, and options that do not say how.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with its I/O and time drivers.
    pub(crate) fn start(address: Address, options: NodeOptions) -> Result<Self, SetupError> {
        options.security.check(&address)?;
        let missing =
            ConnectError::new(ConnectErrorKind::Server, "it is being connected").to_call_error();
        let (events, name) = (Arc::clone(&options.events), Arc::clone(&options.name));
        let report = move |state| events(&name, &NodeEvent::Breaker(state));
        let breaker = Breaker::new(options.breaker.clone(), options.seed, report);
        let shared = Arc::new(NodeState::new(options, breaker, missing));
        let supervisor = tokio::spawn(supervise(address, Arc::clone(&shared))).abort_handle();
        Ok(Self { shared, supervisor })
    }

    /// Runs a script. Nothing is waited for but the answer: where there is no connection, the breaker is open, or too many
    /// calls wait, the call has failed already.
    pub(crate) fn call(&self, command: Command) -> AnswerFuture {
        self.send(|| {
            let deadline = Instant::now() + self.shared.options.deadline;
            QueuedCommand::new(command, deadline)
        })
    }

    /// As [`call`](Self::call), with what is made once it may be sent.
    pub(super) fn send(
        &self,
        waiting: impl FnOnce() -> (QueuedCommand, AnswerFuture),
    ) -> AnswerFuture {
        if !self.shared.breaker.admits() {
            return AnswerFuture::refused(CallError::new(
                CallErrorKind::Unavailable,
                "Redis is unavailable: the circuit breaker is open",
            ));
        }
        let link = self.shared.link();
        let queue = match &**link {
            Link::Connected(queue) => queue,
            Link::Missing(error) => return AnswerFuture::refused(error.clone()),
        };
        let (waiting, call) = waiting();
        match queue.push(waiting) {
            Ok(()) => call,
            Err(error) => AnswerFuture::refused(error),
        }
    }

    /// Whether requests are kept from the server.
    pub(crate) fn breaker(&self) -> BreakerState {
        self.shared.breaker.state()
    }

    /// Whether there is a connection.
    pub(crate) fn is_connected(&self) -> bool {
        matches!(&**self.shared.link(), Link::Connected(_))
    }

    /// Why requests do not go to the server, or not all of them.
    pub(crate) fn trouble(&self) -> Option<String> {
        if let Link::Missing(error) = &**self.shared.link() {
            return Some(error.to_string());
        }
        match self.breaker() {
            BreakerState::Closed => None,
            state => Some(format!(
                "the circuit breaker lets {} % of the requests through to Redis, because calls or attempts to connect have failed",
                state.share()
            )),
        }
    }

    /// Calls that wait to be sent.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        match &**self.shared.link() {
            Link::Connected(queue) => queue.len(),
            Link::Missing(_) => 0,
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

tollgate_core::debug_fields!(Node, it => breaker: it.breaker());
