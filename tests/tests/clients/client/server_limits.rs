//! Budgets that servers report.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::StatusCode;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tollgate::{
    Key, Limiter, MemoryStore, Quota, Rule, SECOND,
    clock::{Clock, ManualClock},
};
use tollgate_client::{ClientRateLimitLayer, ReplayBody, ServerLimits};
use tower::{BoxError, Layer, ServiceExt, service_fn};

use crate::client::provider::{Bytes, Provider, answer, client, get, request, send};

/// Mon, 10 May 2021 11:00:00 GMT.
const ELEVEN: u64 = 1_620_644_400_000_000;

/// In each style, and by a clock that is a minute behind that of the server.
fn nothing_left() -> [Vec<(&'static str, &'static str)>; 4] {
    [
        vec![
            ("ratelimit", r#""a";r=0"#),
            ("ratelimit-policy", r#""a";q=9;w=5"#),
        ],
        vec![("ratelimit", "limit=9, remaining=0, reset=5")],
        vec![("x-rate-limit-remaining", "0"), ("x-rate-limit-reset", "5")],
        vec![
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "2021-05-10T11:01Z"),
            ("date", "Mon, 10 May 2021 11:00:55 GMT"),
        ],
    ]
}

#[tokio::test(start_paused = true)]
async fn an_empty_budget_delays_the_next_request_until_its_reset() {
    for fields in nothing_left() {
        let provider = Provider::new([answer(200, &fields)]);
        let layer = ClientRateLimitLayer::new().clock(ManualClock::new(ELEVEN));
        let client = client(layer, &provider);
        for _ in 0..2 {
            assert_eq!(send(&client, get()).await.unwrap(), 200);
        }
        assert_eq!(provider.seconds(), [0, 5], "{fields:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_server_has_its_own_budgets() {
    let provider = Provider::new([answer(200, &[("ratelimit", r#""a";r=0;t=9"#)])]);
    let client = client(ClientRateLimitLayer::new(), &provider);
    send(&client, get()).await.unwrap();
    let mut other = get();
    *other.uri_mut() = "http://other.example/".parse().unwrap();
    send(&client, other).await.unwrap();
    assert_eq!(provider.seconds(), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn partitions_are_configurable() {
    let provider = Provider::new([answer(200, &[("ratelimit", r#""a";r=0;t=9"#)])]);
    let by_path = ClientRateLimitLayer::new().partition_by(|head| head.uri.path().to_owned());
    let client = client(by_path, &provider);
    for path in ["/a", "/b", "/a"] {
        send(&client, request("GET", path, "")).await.unwrap();
    }
    assert_eq!(provider.seconds(), [0, 0, 9]);
}

#[tokio::test(start_paused = true)]
async fn clones_and_services_of_one_layer_share_budgets() {
    let provider = Provider::new([answer(200, &[("ratelimit", r#""a";r=0;t=9"#)])]);
    let layer = ClientRateLimitLayer::new();
    send(&client(layer.clone(), &provider), get())
        .await
        .unwrap();
    send(&client(layer, &provider), get()).await.unwrap();
    assert_eq!(provider.seconds(), [0, 9]);
}

#[tokio::test(start_paused = true)]
async fn a_response_with_room_wakes_waiting_requests() {
    let reported = |fields: &str| answer(200, &[("ratelimit", fields)]);
    let provider = Provider::new([reported(r#""a";r=1;t=20"#), reported(r#""a";r=9;t=20"#)]);
    let provider = provider.taking(Duration::from_secs(1));
    let client = client(ClientRateLimitLayer::new(), &provider);
    send(&client, get()).await.unwrap();
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let client = client.clone();
        tasks.spawn(async move { send(&client, get()).await.unwrap() });
    }
    tasks.join_all().await;
    // The other two hear after a second that nine are left.
    assert_eq!(start.elapsed(), Duration::from_secs(2));
    assert_eq!(provider.calls(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_queue_empties_at_the_rate_of_a_server_that_says_only_retry_after() {
    let store = MemoryStore::builder().clock(Clock::tokio()).build();
    let limiter = Limiter::new(store, [Rule::new("calls", Quota::gcra(20, SECOND))]).unwrap();
    let denied = Arc::new(AtomicUsize::new(0));
    let denials = Arc::clone(&denied);
    let server = service_fn(move |_: http::Request<ReplayBody<Bytes>>| {
        let decision = limiter.try_acquire("calls", &Key::shared()).unwrap();
        let denial = decision
            .retry_after()
            .map(|_| denials.fetch_add(1, Ordering::SeqCst));
        async move {
            sleep(Duration::from_millis(3)).await;
            Ok::<_, BoxError>(denial.map_or_else(
                || answer(200, &[]),
                |_| answer(429, &[("retry-after", "1")]),
            ))
        }
    });
    let client = ClientRateLimitLayer::new().layer(server);
    while send(&client, request("POST", "/", "")).await.unwrap() == 200 {}
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..200 {
        tasks.spawn(client.clone().oneshot(get()));
    }
    for response in tasks.join_all().await {
        assert_eq!(response.unwrap().status(), 200);
    }
    // Ten seconds and their jitter; the limit is found once, and then once for each cooldown.
    assert!(start.elapsed() < 12 * SECOND, "{:?}", start.elapsed());
    let denied = denied.load(Ordering::SeqCst);
    assert!(denied < 50, "{denied}");
}

#[tokio::test(start_paused = true)]
async fn what_providers_send_is_obeyed_and_the_rest_is_read_by_the_application() {
    let shop = |status: u16, fields: &[(&str, &str)]| answer(status, fields);
    let left = ("x-ratelimit-remaining", "4999");
    let reset = ("x-ratelimit-reset", "9");
    for (rejected, seconds) in [
        (shop(429, &[("retry-after", "2.0")]), 2),
        (shop(429, &[("retry-after-ms", "3000")]), 3),
        // A secondary limit, while units are left.
        (shop(403, &[left, reset, ("retry-after", "5")]), 5),
        (shop(429, &[("x-ratelimit-reset-requests", "20s")]), 20),
        (shop(400, &[("x-come-back", "7")]), 7),
    ] {
        let statuses = [StatusCode::TOO_MANY_REQUESTS, StatusCode::FORBIDDEN];
        let layer = ClientRateLimitLayer::new()
            .limit_statuses(statuses)
            .unwrap();
        let layer = layer.retry_jitter(0).unwrap();
        let layer = layer.read_limits(|_, headers| {
            let wait = headers
                .get("x-come-back")
                .and_then(|wait| wait.to_str().ok());
            let wait = wait.and_then(|wait| wait.parse().ok());
            wait.map_or_else(ServerLimits::new, |wait| {
                ServerLimits::new().retry_after(Duration::from_secs(wait))
            })
        });
        let provider = Provider::new([rejected]);
        let client = client(layer, &provider);
        assert_eq!(send(&client, get()).await.unwrap(), 200);
        assert_eq!(provider.seconds(), [0, seconds]);
    }
}
