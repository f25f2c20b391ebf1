//! Retries.

use std::time::Duration;

use http::Response;
use tokio::time::Instant;
use tollgate_client::{ClientRateLimitLayer, ReplayBody};
use tower::{Layer, ServiceExt, retry::budget::TpsBudget, service_fn};

use crate::provider::{Provider, answer, client, get, request, send};

fn rejected() -> Response<()> {
    answer(429, &[("retry-after", "1")])
}

#[tokio::test(start_paused = true)]
async fn idempotent_requests_are_retried_when_the_server_says() {
    for method in ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"] {
        for status in [429, 503] {
            let provider = Provider::new([answer(status, &[("retry-after", "10")])]);
            let client = client(ClientRateLimitLayer::new(), &provider);
            assert_eq!(
                send(&client, request(method, "/x", "body")).await.unwrap(),
                200
            );
            let [first, second] = &provider.seen()[..] else {
                panic!("{method} was not sent twice");
            };
            assert_eq!((&first.path, &first.body), (&second.path, &second.body));
            assert_eq!(second.body, "body");
            assert!((10_000..=11_000).contains(&second.millis), "{second:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_post_is_retried_with_an_idempotency_key_or_if_marked() {
    let provider = Provider::new([rejected()]);
    let with_key = client(ClientRateLimitLayer::new(), &provider);
    let mut post = request("POST", "/", "x");
    post.headers_mut()
        .insert("idempotency-key", "k-1".parse().unwrap());
    assert_eq!(send(&with_key, post).await.unwrap(), 200);

    let provider = Provider::new([rejected(), rejected()]);
    let search = ClientRateLimitLayer::new().idempotent(|head| head.uri.path() == "/search");
    let client = client(search, &provider);
    assert_eq!(
        send(&client, request("POST", "/search", "")).await.unwrap(),
        200
    );
    assert_eq!(
        send(&client, request("POST", "/orders", "")).await.unwrap(),
        200
    );
}

#[tokio::test(start_paused = true)]
async fn other_responses_are_not_retried() {
    for status in [200, 304, 400, 401, 403, 404, 500, 502, 504] {
        let provider = Provider::new([answer(status, &[("retry-after", "1")])]);
        let client = client(ClientRateLimitLayer::new(), &provider);
        assert_eq!(send(&client, get()).await.unwrap(), status);
        assert_eq!(provider.calls(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_default_is_four_retries() {
    for (layer, calls) in [
        (ClientRateLimitLayer::new(), 5),
        (ClientRateLimitLayer::new().retries(1), 2),
        (ClientRateLimitLayer::new().without_retries(), 1),
    ] {
        let provider = Provider::new((0..9).map(|_| rejected()));
        let client = client(layer, &provider);
        assert_eq!(send(&client, get()).await.unwrap(), 429);
        assert_eq!(provider.calls(), calls);
    }
}

#[tokio::test(start_paused = true)]
async fn the_retry_budget_limits_retries_of_all_requests() {
    let provider = Provider::new((0..2_000).map(|_| answer(503, &[])));
    let layer =
        ClientRateLimitLayer::new().retry_budget(TpsBudget::new(Duration::from_secs(10), 1, 0.2));
    let client = client(layer, &provider);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let client = client.clone();
        tasks.spawn(async move { send(&client, get()).await.unwrap() });
    }
    assert_eq!(tasks.join_all().await, [503; 100]);
    // 100, a fifth of them, and ten.
    assert!(provider.calls() <= 130, "{}", provider.calls());
}

#[tokio::test(start_paused = true)]
async fn a_body_beyond_max_replay_bytes_is_not_retried() {
    let provider = Provider::new([rejected(), answer(200, &[]), rejected()]);
    let client = client(ClientRateLimitLayer::new().max_replay_bytes(4), &provider);
    assert_eq!(
        send(&client, request("PUT", "/", "four")).await.unwrap(),
        200
    );
    assert_eq!(
        send(&client, request("PUT", "/", "fives")).await.unwrap(),
        429
    );
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_inner_client_is_not_retried_and_comes_unchanged() {
    #[derive(Debug, PartialEq)]
    struct Broken;
    impl std::fmt::Display for Broken {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("broken")
        }
    }
    impl std::error::Error for Broken {}

    let broken =
        service_fn(|_: http::Request<ReplayBody<String>>| async { Err::<Response<()>, _>(Broken) });
    let before = Instant::now();
    let request = http::Request::get("/").body(String::new()).unwrap();
    let error = ClientRateLimitLayer::new()
        .layer(broken)
        .oneshot(request)
        .await
        .unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&Broken));
    assert_eq!(Instant::now(), before);
}
