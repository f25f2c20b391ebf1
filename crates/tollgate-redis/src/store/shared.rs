//! What the rule sets on one store have in common: the connection, the clock, the names of keys.

use std::{
    fmt,
    sync::{Arc, LazyLock},
    time::Duration,
};

use redis::Value;
use tokio::runtime::Handle;
use tollgate_core::{Clock, Fingerprint, KeyBuf, StoreError, StoreErrorKind};

use crate::{
    call::Call,
    connection::{call::Call as Answer, node::Node, request::Request, script::Script},
    keyspace::Keyspace,
    observe::{Observer, Timer},
    reply::Reply,
    script,
    store::heartbeat::Instances,
};

/// The script, known to servers by its hash.
static SCRIPT: LazyLock<Arc<Script>> = LazyLock::new(|| Arc::new(Script::new(script::TEXT)));

/// What the rule sets on one store have in common.
pub(super) struct Shared {
    pub(super) node: Node,
    pub(super) keyspace: Keyspace,
    pub(super) instances: Instances,
    pub(super) observer: Arc<Observer>,
    pub(super) secret: [u8; 32],
    /// For servers whose scripts may not ask for the time, with how much longer states are kept.
    pub(super) clock: Option<(Clock, Duration)>,
}

impl Shared {
    /// An empty call, by the server's clock or by the caller's.
    pub(super) fn begin(&self) -> Call {
        match &self.clock {
            None => Call::new(),
            Some((clock, margin)) => Call::at(clock.now(), *margin),
        }
    }

    /// What stands for a client under a rule: nobody without the secret can tell whom.
    pub(super) fn fingerprint(&self, rule: &str, key: &KeyBuf) -> Fingerprint {
        let mut hash = blake3::Hasher::new_keyed(&self.secret);
        // The length first, so that no rule's name and key read as another's.
        hash.update(&(rule.len() as u64).to_le_bytes());
        hash.update(rule.as_bytes());
        hash.update(key.as_bytes());
        let hash = hash.finalize();
        let (first, _) = hash.as_bytes().split_at(16);
        Fingerprint::from_bits(
            first
                .iter()
                .fold(0, |bits, byte| bits << 8 | u128::from(*byte)),
        )
    }

    /// Sends a call whose answer nobody waits for. False if it was not even queued.
    pub(super) fn send_and_forget(&self, call: &Call) -> bool {
        let answer = self.send(call);
        if answer.is_refused() {
            return false;
        }
        // A call that is dropped before it is sent is not sent.
        match Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn(answer);
                true
            }
            Err(_) => false,
        }
    }

    /// The reply to a call of so many checks.
    pub(super) async fn reply(
        &self,
        timer: Timer,
        answer: Answer,
        checks: usize,
    ) -> Result<Reply, StoreError> {
        let answer = answer.await;
        self.observer.called(timer, answer.as_ref().err());
        integers(answer?)
            .and_then(|integers| Reply::new(checks, integers))
            .ok_or_else(|| self.misunderstood())
    }

    fn misunderstood(&self) -> StoreError {
        self.observer.misunderstood();
        StoreError::new(
            StoreErrorKind::Protocol,
            "Redis answered something else than the script does",
        )
    }

    /// Sends a call. It is on its way when this returns, or has failed.
    pub(super) fn send(&self, call: &Call) -> Answer {
        self.node
            .call(Request::checks(&SCRIPT, 0, call.keys(), call.args()))
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

fn integers(answer: Value) -> Option<Vec<i64>> {
    let Value::Array(values) = answer else {
        return None;
    };
    let integer = |value| match value {
        Value::Int(integer) => Some(integer),
        _ => None,
    };
    values.into_iter().map(integer).collect()
}
