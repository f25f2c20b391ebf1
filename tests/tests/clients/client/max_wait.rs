//! How long a request may wait.

use std::{
    future::ready,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{HeaderValue, Request};
use tokio::{task::JoinSet, time::Instant};
use tollgate_client::{
    ClientRateLimitError, ClientRateLimitErrorKind, ClientRateLimitLayer, ReplayBody,
};
use tower::{BoxError, Layer, service_fn};

use crate::client::provider::{Bytes, Provider, answer, client, get, send};

fn server_limit(error: &BoxError) -> Option<Duration> {
    let error = error
        .downcast_ref::<ClientRateLimitError>()
        .expect("a ClientRateLimitError");
    assert_eq!(error.kind(), ClientRateLimitErrorKind::ServerLimit);
    error.retry_after()
}

#[tokio::test(start_paused = true)]
async fn a_request_beyond_max_wait_fails_at_once_with_the_time_to_wait() {
    let provider = Provider::new([answer(503, &[("retry-after", "31")])]);
    let client = client(
        ClientRateLimitLayer::new()
            .retry_jitter(0)
            .expect("a share"),
        &provider,
    );
    send(&client, get()).await.unwrap();
    let before = Instant::now();
    let error = send(&client, get()).await.unwrap_err();
    assert_eq!(server_limit(&error), Some(Duration::from_secs(31)));
    assert_eq!(Instant::now(), before);
    assert_eq!(provider.calls(), 1);
    assert!(error.to_string().contains("31.0 s"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_exactly_max_wait_is_waited_for() {
    // A retry, and a request that comes at the same time as the rejection.
    for (layer, answers) in [
        (ClientRateLimitLayer::new(), &[200, 200][..]),
        (
            ClientRateLimitLayer::new()
                .retries(0)
                .retry_jitter(0)
                .expect("a share"),
            &[503, 200],
        ),
    ] {
        let provider = Provider::new([answer(503, &[("retry-after", "30")])]);
        let client = client(layer, &provider);
        for expected in answers {
            assert_eq!(send(&client, get()).await.unwrap(), *expected);
        }
        assert_eq!(provider.seconds()[..2], [0, 30]);
    }
}

#[tokio::test(start_paused = true)]
async fn max_wait_covers_all_waits_together() {
    let provider = Provider::new((0..9).map(|_| answer(503, &[("retry-after", "4")])));
    let layer = ClientRateLimitLayer::new().max_wait(Duration::from_secs(10));
    let client = client(layer, &provider);
    let before = Instant::now();
    assert_eq!(send(&client, get()).await.unwrap(), 503);
    assert!(before.elapsed() <= Duration::from_secs(10));
    assert_eq!(provider.calls(), 3);
}

#[tokio::test(start_paused = true)]
async fn requests_behind_the_head_of_the_queue_time_out_too() {
    let provider = Provider::new([answer(200, &[("ratelimit", r#""a";r=0;t=9"#)])]);
    let provider = provider.taking(Duration::from_secs(3));
    let client = client(
        ClientRateLimitLayer::new().max_wait(Duration::from_secs(10)),
        &provider,
    );
    send(&client, get()).await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..20 {
        let client = client.clone();
        tasks.spawn(async move { send(&client, get()).await });
    }
    let before = Instant::now();
    let answers = tasks.join_all().await;
    assert!(before.elapsed() <= Duration::from_secs(13));
    assert!(answers.iter().any(Result::is_ok));
    for error in answers.iter().filter_map(|answer| answer.as_ref().err()) {
        // Where the server is open again, the time to wait is not known.
        assert_ne!(server_limit(error), Some(Duration::ZERO));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_no_longer_than_its_own_timeout_and_each_attempt_has_what_is_left() {
    let left = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&left);
    let server = service_fn(move |call: Request<ReplayBody<Bytes>>| {
        let timeout = call.headers()["grpc-timeout"].to_str().unwrap();
        let micros: u64 = timeout.strip_suffix('u').unwrap().parse().unwrap();
        seen.lock().unwrap().push((micros + 500_000) / 1_000_000);
        ready(Ok::<_, BoxError>(answer(503, &[("retry-after", "2")])))
    });
    let layer = ClientRateLimitLayer::new().retry_jitter(0).unwrap();
    let client = layer.layer(server);
    let call = |timeout| {
        let mut call = get();
        let fields = call.headers_mut();
        fields.insert("grpc-timeout", HeaderValue::from_static(timeout));
        call
    };
    assert_eq!(send(&client, call("5S")).await.unwrap(), 503);
    assert_eq!(*left.lock().unwrap(), [5, 3, 1]);
    let before = Instant::now();
    let error = send(&client, call("1000m")).await.unwrap_err();
    assert!(server_limit(&error).is_some());
    assert_eq!(Instant::now(), before);
}
