//! Growing blocks on a server: what they cost, in two processes, and on a server that forgets or is gone.

use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::{Block, HOUR, Key, Limiter, MINUTE, Quota, Reason, Rule, SECOND, Source};
use tollgate_redis::{Keys, RedisStore, Secret};
use tollgate_test_servers::{blocking_server::RedisServer, redis_client::RedisClient};

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
async fn two_processes_share_a_block_a_reset_lifts_it_and_a_server_that_forgets_lifts_all() {
    let server = RedisServer::start(&[]);
    let one = process(&server).await;
    let other = process(&server).await;
    let blocks = async || {
        let mut denied = 0;
        let deadline = Instant::now() + 60 * SECOND;
        while take(&one, "mallory").await.reason() != Some(Reason::Blocked) {
            let of_other = take(&other, "mallory").await;
            denied += u64::from(!of_other.is_allowed());
            assert!(Instant::now() < deadline, "{denied} were denied");
        }
        assert_eq!(
            take(&other, "mallory").await.reason(),
            Some(Reason::Blocked)
        );
    };
    blocks().await;
    let reset = one.reset("login", &Key::of(["mallory"])).expect("a rule");
    assert!(reset.await.expect("the server answers"));
    assert!(take(&one, "mallory").await.is_allowed());
    let seen = async |limiter: &Limiter| {
        let deadline = Instant::now() + 60 * SECOND;
        while take(limiter, "mallory").await.reason() == Some(Reason::Blocked) {
            assert!(Instant::now() < deadline, "the reset is never seen");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    // A block is believed for a second.
    seen(&other).await;
    blocks().await;
    RedisClient::connect(server.address()).say("FLUSHALL");
    seen(&one).await;
    seen(&other).await;
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
