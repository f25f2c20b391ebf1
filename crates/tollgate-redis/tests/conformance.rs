//! The suite that every store has to pass, on a server and by the clock of the suite.

mod support;

use std::{sync::Arc, time::Duration};

use tollgate_core::{BoundStore, Clock, RuleError, RuleSet, Store, conformance_suite};
use tollgate_redis::RedisStore;

use crate::support::blocking_server::RedisServer;

/// A store with a server of its own.
#[derive(Clone, Debug)]
struct WithServer {
    store: RedisStore,
    _server: Arc<RedisServer>,
}

impl Store for WithServer {
    fn bind(&self, rules: Arc<RuleSet>) -> Result<Arc<dyn BoundStore>, RuleError> {
        self.store.bind(rules)
    }
}

async fn store(clock: Clock) -> WithServer {
    let server = RedisServer::start(&[]);
    let address = format!("redis://127.0.0.1:{}", server.port());
    // The suite's clock goes back by years; what Redis has forgotten by then cannot come back.
    let margin = Duration::from_secs(1_000_000);
    let store = RedisStore::builder(&address, "suite")
        .expect("a valid address")
        .caller_clock(clock, margin)
        .deadline(Duration::from_secs(20))
        .expect("a deadline")
        .connect()
        .expect("a runtime");
    store.connected().await;
    WithServer {
        store,
        _server: Arc::new(server),
    }
}

conformance_suite!(store);
