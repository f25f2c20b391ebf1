//! A service that starts while Redis is down.

use std::time::Duration;

use tollgate_core::{Key, Limiter, MINUTE, Quota, Rule, Source};
use tollgate_redis::{BreakerState, Keys, RedisStore};
use tollgate_test_servers::{
    eventually::eventually,
    redis_server::{RedisServer, free_port},
};

#[tokio::test]
async fn connected_means_that_redis_decides_the_first_request() {
    let port = free_port();
    let store = RedisStore::builder(format!("redis://127.0.0.1:{port}"), "start", Keys::plain())
        .deadline(Duration::from_secs(20))
        .connect()
        .expect("a valid address, a deadline and a runtime");
    let rule = Rule::new("api", Quota::gcra(10, MINUTE));
    let limiter = Limiter::new(store.clone(), [rule]).expect("a rule it can serve");
    let checks = [limiter.check("api", &Key::shared()).expect("it is there")];
    // One attempt after the other fails.
    eventually("the breaker opens", || async {
        (store.breaker() == BreakerState::Open).then_some(())
    })
    .await;
    let _server = RedisServer::start_on(port, &[]).await;

    store.connected().await;

    assert_eq!(store.breaker(), BreakerState::Closed);
    let decision = limiter.acquire(&checks).await;
    assert_eq!(decision.verdicts()[0].source(), Source::Store);
}
