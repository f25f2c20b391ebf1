//! The suite that every store has to pass, on a store of few lines around the script: one connection, one call for each
//! request, and the clock of the suite.

mod support;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tollgate_core::{
    BoundStore, Check, Clock, Decision, Fingerprint, Holding, KeyBuf, RuleError, RuleSet,
    Settlement, Step, Store, StoreError, conformance_suite,
};
use tollgate_redis::{
    Keys, Secret,
    call::{Asked, Call},
    encode::Encoder,
    keyspace::{Keyspace, Partition},
    reply::Reply,
    script,
};

use crate::support::{blocking_server::RedisServer, resp::Resp};

#[derive(Debug)]
struct Shared {
    connection: Mutex<Resp>,
    clock: Clock,
    keyspace: Keyspace,
    _server: RedisServer,
}

/// A store that waits for the server where it stands.
#[derive(Clone, Debug)]
struct Blocking(Arc<Shared>);

struct Bound {
    shared: Arc<Shared>,
    rules: Arc<RuleSet>,
    encoder: Encoder,
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").finish_non_exhaustive()
    }
}

impl Store for Blocking {
    fn bind(&self, rules: Arc<RuleSet>) -> Result<Arc<dyn BoundStore>, RuleError> {
        Ok(Arc::new(Bound {
            shared: Arc::clone(&self.0),
            encoder: Encoder::new(&rules, self.0.keyspace.clone())?,
            rules,
        }))
    }
}

impl Bound {
    /// Fills a call and sends it, with one reading of the clock.
    fn call<T>(&self, fill: impl FnOnce(&mut Call) -> T) -> (T, Reply) {
        let mut connection = self
            .shared
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // By the suite's clock a state is fresh in a moment, by the server's it is not.
        let margin = Duration::from_secs(1_000_000);
        let mut call = Call::at(self.shared.clock.now(), margin);
        let filled = fill(&mut call);
        let reply = if call.is_empty() {
            vec![i64::try_from(self.shared.clock.now()).expect("a time of these centuries")]
        } else {
            let count = call.keys().len().to_string();
            let head = [&b"EVAL"[..], script::TEXT.as_bytes(), count.as_bytes()];
            let command = head.into_iter().chain(call.keys()).chain(call.args());
            connection.ask(command).integers()
        };
        (filled, Reply::new(&call, reply).expect("a whole reply"))
    }

    fn decide(&self, checks: &[Check], take: bool) -> Step<Decision> {
        let (asked, reply): (Asked, Reply) = self.call(|call| {
            let asked = if take {
                call.acquire(&self.encoder, checks)
            } else {
                call.peek(&self.encoder, checks)
            };
            asked.expect("there is room")
        });
        Step::Ready(reply.decision(&asked, checks, &self.rules))
    }
}

impl BoundStore for Bound {
    fn rules(&self) -> &Arc<RuleSet> {
        &self.rules
    }

    fn fingerprint(&self, rule: u16, key: &KeyBuf) -> Fingerprint {
        self.encoder.fingerprint(rule, key)
    }

    fn acquire(&self, checks: &[Check]) -> Step<Decision> {
        self.decide(checks, true)
    }

    fn peek(&self, checks: &[Check]) -> Step<Decision> {
        self.decide(checks, false)
    }

    fn settle(&self, holdings: &[Holding], how: Settlement) {
        self.call(|call| {
            assert!(call.settle_all(&self.encoder, holdings, how));
        });
    }

    fn reset(&self, rule: u16, key: Fingerprint) -> Step<Result<(), StoreError>> {
        self.call(|call| assert!(call.reset(&self.encoder, rule, key)));
        Step::Ready(Ok(()))
    }
}

fn store(clock: Clock, partition: Partition, keys: Keys) -> Blocking {
    let server = RedisServer::start(&[]);
    let keyspace = Keyspace::new("shop", partition).expect("letters");
    Blocking(Arc::new(Shared {
        connection: Mutex::new(Resp::connect(server.address())),
        clock,
        keyspace: keyspace.with_keys(keys),
        _server: server,
    }))
}

fn secret(byte: u8) -> Secret {
    Secret::from_bytes([byte; 32]).expect("32 bytes")
}

mod hashed {
    use super::*;

    async fn store(clock: Clock) -> Blocking {
        super::store(clock, Partition::One, Keys::hashed(secret(1)))
    }

    conformance_suite!(store);
}

mod with_the_previous_secret {
    use super::*;

    async fn store(clock: Clock) -> Blocking {
        let keys = Keys::hashed(secret(2)).previous(secret(1));
        super::store(clock, Partition::Key, keys.expect("two secrets"))
    }

    conformance_suite!(store);
}

mod plain {
    use super::*;

    async fn store(clock: Clock) -> Blocking {
        super::store(clock, Partition::One, Keys::plain())
    }

    conformance_suite!(store);
}
