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
            encoder: Encoder::new(&rules, Keyspace::new("tg", Partition::Key)?)?,
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

    /// Parts of keys are short in the suite: their bytes are fingerprint enough.
    fn fingerprint(&self, _rule: u16, key: &KeyBuf) -> Fingerprint {
        let bits = key.as_bytes().iter().fold(0, |bits: u128, byte| {
            bits.wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b) ^ u128::from(*byte)
        });
        Fingerprint::from_bits(bits)
    }

    fn acquire(&self, checks: &[Check]) -> Step<Decision> {
        self.decide(checks, true)
    }

    fn peek(&self, checks: &[Check]) -> Step<Decision> {
        self.decide(checks, false)
    }

    fn settle(&self, holdings: &[Holding], how: Settlement) {
        self.call(|call| {
            for holding in holdings {
                assert!(call.settle(&self.encoder, holding, how));
            }
        });
    }

    fn reset(&self, rule: u16, key: Fingerprint) -> Step<Result<(), StoreError>> {
        self.call(|call| assert!(call.reset(&self.encoder, rule, key)));
        Step::Ready(Ok(()))
    }
}

async fn store(clock: Clock) -> Blocking {
    let server = RedisServer::start(&[]);
    Blocking(Arc::new(Shared {
        connection: Mutex::new(Resp::connect(server.address())),
        clock,
        _server: server,
    }))
}

conformance_suite!(store);
