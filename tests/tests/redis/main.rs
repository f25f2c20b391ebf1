//! The layer on Redis: what clients and operators see.

mod alone;
mod seen;
mod service;
mod size;

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate_redis::{Keys, RedisStore, Secret};
use tollgate_test_servers::redis_server::{PATIENCE, RedisServer};

/// How clients are written.
fn keys() -> Keys {
    Keys::hashed(Secret::from_bytes([7; 32]).expect("it is long enough"))
}

/// A store that is connected.
async fn store(server: &RedisServer, namespace: &str) -> RedisStore {
    let store = RedisStore::builder(server.url(), namespace, keys())
        .deadline(PATIENCE)
        .connect()
        .expect("a valid address");
    store.connected().await;
    store
}

/// Waits until something holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "it never came that {what}");
        sleep(Duration::from_millis(10)).await;
    }
}
