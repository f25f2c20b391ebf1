//! The suite that every store has to pass, on a server and by the clock of the suite; with the keys of clients under one
//! secret and during a change of secrets, and with every consistency.

use std::{
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tollgate_conformance::{
    conformance_suite, credits_suite, reservations_suite, slots_suite, wait_suite,
};
use tollgate_core::{
    Clock, Consistency, LeaseShare, RuleError, RuleSet, Store,
    store::{RuleRegistry, RuleStore},
};
use tollgate_redis::{Keys, RedisStore, Secret};
use tollgate_test_servers::blocking_server::RedisServer;

/// A store, and the server that all tests share that run at the time.
#[derive(Clone, Debug)]
struct WithServer {
    store: RedisStore,
    consistency: Consistency,
    _server: Arc<RedisServer>,
}

impl Store for WithServer {
    fn bind(&self, rules: Arc<RuleSet>) -> Result<Arc<dyn RuleStore>, RuleError> {
        if self.consistency == Consistency::Exact {
            return self.store.bind(rules);
        }
        let rules = rules.given().iter().cloned();
        let rules = rules.map(|rule| {
            let consistency = match self.consistency {
                // It has none.
                Consistency::Eventual { .. } if rule.debt_of() > 0 => Consistency::Exact,
                // No more than there are.
                Consistency::Eventual {
                    interval,
                    max_unreported,
                } => Consistency::Eventual {
                    interval,
                    max_unreported: max_unreported.min(rule.quota().limit()),
                },
                other => other,
            };
            rule.consistency(consistency)
        });
        self.store.bind(Arc::new(RuleSet::new(rules)?))
    }

    fn registry(&self) -> &RuleRegistry {
        self.store.registry()
    }
}

fn secret(byte: u8) -> Secret {
    Secret::from_bytes([byte; 32]).expect("it is long enough")
}

/// It ends with the last test that has it.
fn server() -> Arc<RedisServer> {
    static LAST: Mutex<Weak<RedisServer>> = Mutex::new(Weak::new());
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    last.upgrade().unwrap_or_else(|| {
        let server = Arc::new(RedisServer::start(&[]));
        *last = Arc::downgrade(&server);
        server
    })
}

async fn store(clock: Clock, keys: Keys) -> WithServer {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let server = server();
    let address = format!("redis://127.0.0.1:{}", server.port());
    let namespace = format!("suite-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    // The suite's clock goes back by years; what Redis has forgotten by then cannot come back.
    let margin = Duration::from_secs(1_000_000);
    let store = RedisStore::builder(&address, &namespace, keys)
        .caller_clock(clock, margin)
        .deadline(Duration::from_secs(20))
        .connect()
        .expect("a runtime");
    store.connected().await;
    WithServer {
        store,
        consistency: Consistency::Exact,
        _server: server,
    }
}

mod hashed {
    use super::*;

    async fn store(clock: Clock) -> WithServer {
        crate::store(clock, Keys::hashed(secret(7))).await
    }

    conformance_suite!(store);
    slots_suite!(store, own_clock);
    wait_suite!(store);
    reservations_suite!(store, own_clock);
    credits_suite!(store);
}

mod during_a_change_of_secrets {
    use super::*;

    async fn store(clock: Clock) -> WithServer {
        let keys = Keys::hashed(secret(8)).previous(secret(7));
        crate::store(clock, keys.expect("another one")).await
    }

    conformance_suite!(store);
    slots_suite!(store, own_clock);
    wait_suite!(store);
    reservations_suite!(store, own_clock);
    credits_suite!(store);
}

mod leased {
    use super::*;

    async fn store(clock: Clock) -> WithServer {
        WithServer {
            consistency: Consistency::Leased {
                share: LeaseShare::percent(25),
            },
            ..crate::store(clock, Keys::hashed(secret(7))).await
        }
    }

    conformance_suite!(store, leased);
    reservations_suite!(store, own_clock);
    credits_suite!(store);
}

/// A unit is due as soon as it was counted, and every few milliseconds somebody looks, beside whatever a case asks.
mod eventual {
    use super::*;

    async fn store(clock: Clock) -> WithServer {
        WithServer {
            consistency: Consistency::Eventual {
                interval: Duration::from_micros(1),
                max_unreported: 4,
            },
            ..crate::store(clock, Keys::hashed(secret(7))).await
        }
    }

    conformance_suite!(store, eventual);
}

/// Nothing is reported but by who has to ask, which is every second request.
mod eventual_by_requests {
    use super::*;

    async fn store(clock: Clock) -> WithServer {
        WithServer {
            consistency: Consistency::Eventual {
                interval: Duration::from_secs(3_600),
                max_unreported: 1,
            },
            ..crate::store(clock, Keys::hashed(secret(7))).await
        }
    }

    conformance_suite!(store, eventual);
}
