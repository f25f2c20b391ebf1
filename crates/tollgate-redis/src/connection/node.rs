//! One server.

use std::{sync::Arc, time::Duration};

use tokio::{task::AbortHandle, time::Instant};

use crate::{
    address::{Address, Target},
    connection::{
        breaker::Breaker,
        breaker_state::BreakerState,
        call::{Call, Waiting},
        error::{CallError, CallErrorKind, ConnectError, ConnectErrorKind},
        event::NodeEvent,
        options::NodeOptions,
        request::Request,
        supervisor::{Link, Shared, supervise},
    },
    error::SetupError,
};

/// A server and the one connection to it, which a task of this node makes, minds, and makes anew.
///
/// It may be started before its server is there. Dropping it ends the task and closes the connection.
pub(crate) struct Node {
    shared: Arc<Shared>,
    supervisor: AbortHandle,
}

/// The longest deadline of a call.
pub(super) const LONGEST: Duration = Duration::from_secs(3600);

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
    pub(crate) fn start(address: Address, mut options: NodeOptions) -> Result<Self, SetupError> {
        if let Target::Cluster(_) = address.target {
            return Err(SetupError::address(
                "this needs one server; name it with redis://, or sentinels that know it with redis-sentinel://",
            ));
        }
        options.security.check(&address)?;
        // So that no sum of times leaves what an instant can hold.
        options.deadline = options.deadline.min(LONGEST);
        let missing =
            ConnectError::new(ConnectErrorKind::Server, "it is being connected").to_call_error();
        let (events, name) = (Arc::clone(&options.events), Arc::clone(&options.name));
        let report = move |state| events(&name, &NodeEvent::Breaker(state));
        let breaker = Breaker::new(options.breaker.clone(), options.seed, report);
        let shared = Arc::new(Shared::new(options, breaker, missing));
        let supervisor = tokio::spawn(supervise(address, Arc::clone(&shared))).abort_handle();
        Ok(Self { shared, supervisor })
    }

    /// Runs a script. Nothing is waited for but the answer: where there is no connection, the breaker is open, or too many
    /// calls wait, the call has failed already.
    pub(crate) fn call(&self, request: Request) -> Call {
        self.send(|| {
            let deadline = Instant::now() + self.shared.options.deadline;
            Waiting::new(request, deadline)
        })
    }

    /// As [`call`](Self::call), with what is made once it may be sent.
    pub(super) fn send(&self, waiting: impl FnOnce() -> (Waiting, Call)) -> Call {
        if !self.shared.breaker.admits() {
            return Call::refused(CallError::new(
                CallErrorKind::Unavailable,
                "Redis is unavailable: the circuit breaker is open",
            ));
        }
        let line = self.shared.line();
        let queue = match &**line {
            Link::Connected(queue) => queue,
            Link::Missing(error) => return Call::refused(error.clone()),
        };
        let (waiting, call) = waiting();
        match queue.push(waiting) {
            Ok(()) => call,
            Err(error) => Call::refused(error),
        }
    }

    /// Whether requests are kept from the server.
    pub(crate) fn breaker(&self) -> BreakerState {
        self.shared.breaker.state()
    }

    /// Whether there is a connection.
    pub(crate) fn is_connected(&self) -> bool {
        matches!(&**self.shared.line(), Link::Connected(_))
    }

    /// Why requests do not go to the server, or not all of them.
    pub(crate) fn trouble(&self) -> Option<String> {
        if let Link::Missing(error) = &**self.shared.line() {
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
    pub(crate) fn waiting(&self) -> usize {
        match &**self.shared.line() {
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

tollgate_core::debug_fields!(Node, it => breaker: it.breaker(), waiting: it.waiting());
