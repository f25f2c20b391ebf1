//! What clocks and other processes make of what a client is told.

use axum::{Router, routing::get};
use tollgate::{
    Key, Limiter, MINUTE, Quota, RateLimitLayer, Rule, SECOND, clock::Clock, header::HeaderStyle,
    key::constant,
};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{moved_server::MovedServer, redis_server::RedisServer};
use tollgate_tests::server::Server;

use crate::{keys, store};

#[tokio::test]
async fn a_moment_in_a_field_is_by_the_clock_of_the_response_wherever_that_of_redis_is() {
    for ahead in [300_000_000, -300_000_000] {
        let seconds = || Clock::system().now() / 1_000_000;
        let now = i64::try_from(Clock::system().now()).expect("before the year 294 000");
        let redis = MovedServer::start(now + ahead);
        let store = RedisStore::builder(redis.url(), "shop", keys());
        let store = store
            .deadline(20 * SECOND)
            .connect()
            .expect("a valid address");
        store.connected().await;
        let rule = Rule::new("one", Quota::gcra(1, MINUTE)).by(constant("all"));
        let limits = RateLimitLayer::new(store, [rule]).expect("a valid rule");
        let limits = limits.headers(HeaderStyle::X_RATELIMIT_EPOCH | HeaderStyle::DRAFT_6);
        let limits = limits.expect("they go together");
        let app = Router::new().route("/", get(async || "hello").layer(limits));
        let server = Server::start(app).await;
        for status in [200, 429] {
            let before = seconds();
            let answer = server.get("/").await;
            assert_eq!(answer.status, status);
            let field = |name| answer.header(name).expect(name).parse::<u64>().expect(name);
            let (moment, left) = (field("x-ratelimit-reset"), field("ratelimit-reset"));
            let moments = before + left..=seconds() + left + 1;
            assert!(moments.contains(&moment), "{moment} {moments:?}");
        }
    }
}

#[tokio::test]
async fn a_denial_says_when_its_cost_fits_where_another_process_has_taken_what_was_left() {
    let redis = RedisServer::start(&[]).await;
    let rule = || [Rule::new("units", Quota::gcra(1, MINUTE).burst(5))];
    let processes = [store(&redis, "shop").await, store(&redis, "shop").await];
    let processes = processes.map(|store| Limiter::new(store, rule()).expect("a valid rule"));
    let take = async |process: usize, cost| {
        let check = processes[process].check("units", &Key::shared());
        let check = check.expect("the rule").with_cost(cost);
        processes[process].acquire(&[check]).await
    };
    assert!(take(0, 3).await.is_allowed());
    assert!(!take(0, 4).await.is_allowed());
    assert!(take(1, 2).await.is_allowed());
    let [told, later] = [take(0, 4).await, take(1, 4).await].map(|denied| denied.retry());
    // Each as of its own time: the later one has less to wait.
    assert!(
        told.delay() >= later.delay() && later.delay() > Some(2 * MINUTE),
        "{told:?} {later:?}"
    );
}
