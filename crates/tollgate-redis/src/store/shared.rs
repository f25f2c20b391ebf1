//! What the rule sets on one store have in common: the connection, the clock, the names of keys.

use std::{
    fmt,
    sync::{Arc, LazyLock},
    time::Duration,
};

use tokio::runtime::Handle;
use tollgate_core::{Clock, StoreError, StoreErrorKind};

use crate::{
    call::Call,
    connection::{error::CallError, script::Script, value::Value},
    keyspace::Keyspace,
    new_keys::NewKeys,
    observe::{Observer, Timer},
    reply::Reply,
    script,
    store::{
        backend::{Answer, Backend},
        instances::Instances,
    },
};

/// The script, known to servers by its hash.
static SCRIPT: LazyLock<Arc<Script>> = LazyLock::new(|| Arc::new(Script::new(script::TEXT)));

/// What the rule sets on one store have in common.
pub(super) struct Shared {
    pub(super) backend: Backend,
    pub(super) keyspace: Keyspace,
    pub(super) instances: Instances,
    pub(super) observer: Arc<Observer>,
    /// For servers whose scripts may not ask for the time, with how much longer states are kept.
    pub(super) clock: Option<(Clock, Duration)>,
    /// By the names of rules: how many keys this process may make for them.
    pub(super) caps: Vec<(Box<str>, Arc<NewKeys>)>,
    /// That of the connections, for what is sent without a request.
    pub(super) runtime: Handle,
    /// Whether denials are remembered.
    pub(super) learns: bool,
}

impl Shared {
    /// An empty call, by the server's clock or by the caller's.
    pub(super) fn begin(&self) -> Call {
        match &self.clock {
            None => Call::new(),
            Some((clock, margin)) => Call::at(clock.now(), *margin),
        }
    }

    /// Sends a call. It is on its way when this returns, or has failed.
    pub(super) fn send(&self, call: &Call) -> Answer {
        self.backend.send(&SCRIPT, call)
    }

    /// Sends a settlement, whose answer nobody waits for.
    pub(super) fn settle(&self, call: &Call) {
        let answer = self.send(call);
        match Handle::try_current() {
            Ok(runtime) if !answer.is_refused() => {
                // A call that is dropped before it is sent is not sent.
                runtime.spawn(answer);
            }
            _ => self.observer.settlement_lost(),
        }
    }

    /// The reply to a call of so many checks, once it is there.
    pub(super) fn reply(
        &self,
        timer: Timer,
        answer: Result<Value, CallError>,
        checks: usize,
    ) -> Result<Reply, StoreError> {
        self.observer.called(timer, answer.as_ref().err());
        match answer? {
            Value::Integers(integers) => Reply::new(checks, integers),
            _ => None,
        }
        .ok_or_else(|| self.misunderstood())
    }

    fn misunderstood(&self) -> StoreError {
        self.observer.misunderstood();
        StoreError::new(
            StoreErrorKind::Protocol,
            "Redis answered something else than the script does",
        )
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("backend", &self.backend)
            .finish_non_exhaustive()
    }
}
