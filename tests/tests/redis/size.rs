//! The size of the namespace, as operators see it.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::{Key, Limiter, Quota, Rule};
use tollgate_core::MAX_PERIOD;
use tollgate_redis::RedisStore;
use tollgate_test_servers::redis_server::RedisServer;
use tollgate_tests::{
    counted::{Counted, Metrics},
    events::Events,
};
use tracing::Level;

use crate::{keys, store, until};

const KEYS: &str = "tollgate_redis_namespace_keys{}";
const BYTES: &str = "tollgate_redis_namespace_bytes{}";
const USED: &str = "tollgate_redis_memory_used_ratio{}";

fn measuring(redis: &RedisServer) -> RedisStore {
    RedisStore::builder(redis.url(), "shop", keys())
        .measure_namespace(100_000)
        .without_heartbeats()
        .connect()
        .expect("a valid address")
}

/// A state for each of so many clients.
async fn fill(redis: &RedisServer, namespace: &str, clients: u64) {
    let store = store(redis, namespace).await;
    let limiter = Limiter::new(
        store,
        [Rule::new("api", Quota::fixed_window(9, MAX_PERIOD))],
    );
    let limiter = limiter.expect("a valid rule");
    for client in 0..clients {
        let check = limiter.check("api", &Key::of(client)).expect("it is there");
        assert!(limiter.acquire(&[check]).await.is_allowed());
    }
}

/// Once the gauges are there.
async fn measured(metrics: &Metrics) -> Counted {
    let mut last = metrics.counted();
    until("it is measured", || {
        last = metrics.counted();
        last.names().any(|name| name == KEYS)
    })
    .await;
    last
}

/// The number of keys that servers call so, and the bytes that they say of them.
async fn asked(redis: &RedisServer, pattern: &str) -> (usize, u64) {
    let keys = redis.command(&["KEYS", pattern]).await;
    let keys = keys.lines().filter(|line| !line.starts_with(['*', '$']));
    let (mut count, mut bytes) = (0, 0);
    for key in keys {
        let usage = redis.command(&["MEMORY", "USAGE", key]).await;
        bytes += usage
            .trim()
            .trim_start_matches(':')
            .parse::<u64>()
            .expect("a number");
        count += 1;
    }
    (count, bytes)
}

#[tokio::test]
async fn the_keys_of_the_namespace_are_counted_and_no_others() {
    let redis = RedisServer::start(&["--maxmemory", "100mb"]).await;
    fill(&redis, "shop", 700).await;
    fill(&redis, "shop:eu", 50).await;
    // What begins like it, and what is of others.
    for name in [
        "shop:session",
        "shop",
        "{shop",
        "{shop}",
        "{shopping}:x",
        "x{shop}:y",
    ] {
        redis.command(&["SET", name, "1"]).await;
    }
    // By another partition: more than what else is there may hide.
    for client in 1..=20 {
        let name = format!("shop:{{tenant}}+client:api:b{client}");
        redis.command(&["SET", &name, "1"]).await;
    }
    let metrics = Metrics::record();
    let _store = measuring(&redis);
    let counted = measured(&metrics).await;
    // Beside the states there are who measures, and what the heartbeats of the other store have left.
    let (states, bytes) = asked(&redis, "{shop}:*:api:*").await;
    assert_eq!(states, 700);
    let keys = counted.gauge(KEYS);
    assert!((720.5..=723.5).contains(&keys), "{keys}");
    let per_key = bytes as f64 / 700.0;
    let ratio = counted.gauge(BYTES) / keys / per_key;
    assert!((0.8..1.25).contains(&ratio), "{ratio}");
    let info = redis.command(&["INFO", "memory"]).await;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"));
    let used: f64 = line.and_then(|used| used.parse().ok()).expect("a number");
    let ratio = counted.gauge(USED) / (used / f64::from(100 << 20));
    assert!((0.7..1.4).contains(&ratio), "{ratio}");
}

#[tokio::test]
async fn one_process_measures_and_the_others_read_what_it_has_found() {
    let redis = RedisServer::start(&[]).await;
    // As another process does.
    redis
        .command(&["SET", "{shop}:measuring", "another", "PX", "60000"])
        .await;
    redis.command(&["SET", "{shop}:size", "7 1400 612"]).await;
    let metrics = Metrics::record();
    let store = measuring(&redis);
    let counted = measured(&metrics).await;
    let near = |name: &str, number: f64| (counted.gauge(name) - number).abs() < 1e-6;
    assert!(near(KEYS, 7.0) && near(BYTES, 1_400.0) && near(USED, 0.612));
    let scans = async || {
        redis
            .command(&["INFO", "commandstats"])
            .await
            .contains("cmdstat_scan:")
    };
    assert!(!scans().await, "two processes look at the keys");
    let by = redis.command(&["GET", "{shop}:measuring"]).await;
    assert!(by.contains("another"), "{by}");
    drop(store);
    // It has ended without a word, and another one follows.
    redis.command(&["DEL", "{shop}:measuring"]).await;
    let _store = measuring(&redis);
    until("it measures by itself", || {
        let counted = metrics.counted();
        (counted.gauge(KEYS) - 2.0).abs() < 0.5
    })
    .await;
    assert!(scans().await);
    // What it has found is there for the others.
    let found = redis.command(&["GET", "{shop}:size"]).await;
    assert!(found.contains("\r\n2 "), "{found}");
}

#[tokio::test]
async fn a_right_that_is_missing_is_an_event_and_nothing_is_measured() {
    let events = Events::listen();
    let metrics = Metrics::record();
    let redis = RedisServer::start(&[]).await;
    redis.command(&["ACL", "SETUSER", "default", "-scan"]).await;
    let _store = measuring(&redis);
    until("there is an event", || {
        let mut events_now = events.recorded().into_iter();
        events_now.any(|event| event.level == Level::ERROR && event.fields.contains("user"))
    })
    .await;
    sleep(Duration::from_millis(50)).await;
    assert!(!metrics.counted().names().any(|name| name == KEYS));
}
