//! A growing block on a server that goes away.

use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::{Block, HOUR, Key, Limiter, MINUTE, Quota, Reason, Rule, SECOND, Source};
use tollgate_redis::{Keys, RedisStore, Secret};
use tollgate_test_servers::blocking_server::RedisServer;

fn rule() -> Rule {
    let block = Block::after(50)
        .within(10 * MINUTE)
        .for_each([MINUTE, 10 * MINUTE]);
    Rule::new("login", Quota::fixed_window(5, HOUR)).block(block)
}

/// A process with its own engine.
async fn process(server: &RedisServer) -> Limiter {
    let secret = Secret::from_bytes([7; 32]).expect("it is long enough");
    let address = format!("redis://{}", server.address());
    let store = RedisStore::builder(&address, "blocks", Keys::hashed(secret));
    let store = store.deadline(60 * SECOND).connect().expect("a runtime");
    store.connected().await;
    Limiter::new(store, [rule()]).expect("a valid rule")
}

async fn take(limiter: &Limiter, who: &str) -> tollgate_core::Decision {
    let check = limiter.check("login", &Key::of([who])).expect("a rule");
    limiter.acquire(&[check]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_that_is_known_stands_while_the_server_is_gone() {
    let server = RedisServer::start(&[]);
    let limiter = process(&server).await;
    while take(&limiter, "mallory").await.reason() != Some(Reason::Blocked) {}
    drop(server);
    let ends = Instant::now() + 1_500 * Duration::from_millis(1);
    while Instant::now() < ends {
        let denied = take(&limiter, "mallory").await;
        assert_eq!(denied.reason(), Some(Reason::Blocked), "{denied:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let ann = take(&limiter, "ann").await;
    assert!(ann.is_allowed() && ann.verdicts()[0].source() == Source::Fallback);
}
