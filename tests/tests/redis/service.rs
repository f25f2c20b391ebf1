//! Services that share their limits.

use axum::{Router, routing::get};
use tollgate::{
    OnStoreError, Quota, RateLimitLayer, RequestRule, Rule,
    key::{client_ip, constant},
    quota::MAX_PERIOD,
};
use tollgate_redis::RedisStore;
use tollgate_test_servers::redis_server::RedisServer;
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
async fn two_namespaces_on_one_server_never_meet() {
    let redis = RedisServer::start(&[]).await;
    let shop = serve(store(&redis, "shop").await, [per_ip()]).await;
    let forum = serve(store(&redis, "forum").await, [per_ip()]).await;
    for _ in 0..3 {
        assert_eq!(shop.get("/").await.status, 200);
    }
    assert_eq!(shop.get("/").await.status, 429);
    assert!(forum.get("/").await.list("ratelimit").contains("r=2"));
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
