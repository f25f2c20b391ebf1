//! Services that share their limits.

use axum::{Router, routing::get};
use tollgate::{
    Clock, Key, Limiter, MINUTE, OnStoreError, Quota, RateLimitLayer, RequestRule, Rule, SECOND,
    header::HeaderStyle,
    key::{client_ip, constant},
    quota::MAX_PERIOD,
};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{moved_server::MovedServer, redis_server::RedisServer};
use tollgate_tests::server::Server;

use crate::{keys, store};

async fn serve(store: RedisStore, rules: impl IntoIterator<Item = RequestRule>) -> Server {
    let limits = RateLimitLayer::new(store, rules).expect("valid rules");
    Server::start(
        Router::new()
            .route("/", get(async || "hello"))
            .layer(limits),
    )
    .await
}

fn per_ip() -> RequestRule {
    Rule::new("per-ip", Quota::fixed_window(3, MAX_PERIOD)).by(client_ip())
}

#[tokio::test]
async fn two_services_share_one_limit_and_report_its_remaining_units() {
    let redis = RedisServer::start(&[]).await;
    let one = serve(store(&redis, "shop").await, [per_ip()]).await;
    let other = serve(store(&redis, "shop").await, [per_ip()]).await;
    let mut left = Vec::new();
    for server in [&one, &other, &one, &other] {
        let answer = server.get("/").await;
        let remaining = answer.list("ratelimit");
        let remaining = remaining.split(';').nth(1).expect("r").to_owned();
        left.push((answer.status, remaining));
    }
    let expected = [(200, "r=2"), (200, "r=1"), (200, "r=0"), (429, "r=0")];
    assert_eq!(
        left,
        expected.map(|(status, left)| (status, left.to_owned()))
    );
}

#[tokio::test]
async fn a_service_starts_without_redis_and_answers_as_its_rules_say() {
    let mut redis = RedisServer::start(&[]).await;
    redis.kill();
    let rule = |name, answer| {
        let rule = Rule::new(name, Quota::fixed_window(4, MAX_PERIOD));
        rule.on_store_error(answer).by(constant("all"))
    };
    let unconnected = || {
        RedisStore::builder(redis.url(), "shop", keys())
            .connect()
            .expect("a valid address")
    };
    let strict = serve(unconnected(), [rule("strict", OnStoreError::Deny)]).await;
    let open = serve(unconnected(), [rule("open", OnStoreError::Allow)]).await;
    let share = serve(unconnected(), [rule("share", OnStoreError::LocalShare)]).await;
    assert_eq!(strict.get("/").await.status, 503);
    for _ in 0..6 {
        assert_eq!(open.get("/").await.status, 200);
    }
    let mut statuses = Vec::new();
    for _ in 0..6 {
        statuses.push(share.get("/").await.status);
    }
    assert_eq!(statuses, [200, 200, 200, 200, 429, 429]);
}

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
    let rule = || [Rule::new("units", Quota::gcra(1, SECOND).burst(5))];
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
        told.delay() >= later.delay() && later.delay() > Some(2 * SECOND),
        "{told:?} {later:?}"
    );
}
