//! What is sent again.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body_util::{BodyExt, StreamBody};
use tokio::time::Instant;
use tollgate::client::{PaceLayer, ReplayBody};
use tower::{BoxError, Layer, ServiceExt, retry::budget::TpsBudget, service_fn};

use crate::provider::{Provider, answer, client, get, request, send};

fn refused() -> Response<()> {
    answer(429, &[("retry-after", "1")])
}

#[tokio::test(start_paused = true)]
async fn what_is_idempotent_is_sent_again_when_the_server_said() {
    for method in ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"] {
        for status in [429, 503] {
            let provider = Provider::new([answer(status, &[("retry-after", "10")])]);
            let client = client(PaceLayer::new(), &provider);
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
async fn what_may_do_harm_is_sent_once() {
    for method in ["POST", "PATCH"] {
        let provider = Provider::new([refused()]);
        let client = client(PaceLayer::new(), &provider);
        assert_eq!(send(&client, request(method, "/", "x")).await.unwrap(), 429);
        assert_eq!(provider.calls(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_post_with_a_key_or_a_word_from_the_user_is_sent_again() {
    let provider = Provider::new([refused()]);
    let with_key = client(PaceLayer::new(), &provider);
    let mut post = request("POST", "/", "x");
    post.headers_mut()
        .insert("idempotency-key", "k-1".parse().unwrap());
    assert_eq!(send(&with_key, post).await.unwrap(), 200);

    let provider = Provider::new([refused(), refused()]);
    let search = PaceLayer::new().idempotent(|head| head.uri.path() == "/search");
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
async fn other_answers_are_the_callers() {
    for status in [200, 304, 400, 401, 403, 404, 500, 502, 504] {
        let provider = Provider::new([answer(status, &[("retry-after", "1")])]);
        let client = client(PaceLayer::new(), &provider);
        assert_eq!(send(&client, get()).await.unwrap(), status);
        assert_eq!(provider.calls(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn there_are_four_retries_unless_told_otherwise() {
    for (layer, calls) in [
        (PaceLayer::new(), 5),
        (PaceLayer::new().retries(1), 2),
        (PaceLayer::new().without_retries(), 1),
    ] {
        let provider = Provider::new((0..9).map(|_| refused()));
        let client = client(layer, &provider);
        assert_eq!(send(&client, get()).await.unwrap(), 429);
        assert_eq!(provider.calls(), calls);
    }
}

#[tokio::test(start_paused = true)]
async fn where_the_server_says_nothing_the_waits_grow() {
    let provider = Provider::new((0..9).map(|_| answer(503, &[])));
    let client = client(PaceLayer::new(), &provider);
    assert_eq!(send(&client, get()).await.unwrap(), 503);
    let seen = provider.seen();
    let waits = seen.windows(2).map(|pair| pair[1].millis - pair[0].millis);
    for (wait, least) in waits.zip([100, 200, 400, 800]) {
        assert!((least..=2 * least + 2).contains(&wait), "{wait}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_down_is_not_asked_many_times_as_often() {
    let provider = Provider::new((0..2_000).map(|_| answer(503, &[])));
    let layer = PaceLayer::new().retry_budget(TpsBudget::new(Duration::from_secs(10), 1, 0.2));
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
async fn a_body_beyond_what_is_kept_is_sent_once() {
    let provider = Provider::new([refused(), answer(200, &[]), refused()]);
    let client = client(PaceLayer::new().keep_bodies(4), &provider);
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
async fn a_stream_is_sent_again_frame_by_frame_with_its_trailers() {
    type Frame = Result<http_body::Frame<Bytes>, std::convert::Infallible>;
    let frames = |parts: &[&'static str]| {
        let data = parts
            .iter()
            .map(|part| Ok(http_body::Frame::data(Bytes::from_static(part.as_bytes()))));
        let trailers = HeaderMap::from_iter([(http::header::ETAG, "v1".parse().unwrap())]);
        let frames: Vec<Frame> = data
            .chain([Ok(http_body::Frame::trailers(trailers))])
            .collect();
        StreamBody::new(tokio_stream::iter(frames))
    };
    let calls = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = std::sync::Arc::clone(&calls);
    let server = service_fn(move |request: http::Request<ReplayBody<_>>| {
        let call = counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        async move {
            let collected = request.into_body().collect().await.expect("a whole body");
            assert_eq!(collected.trailers().unwrap()["etag"], "v1");
            assert_eq!(collected.to_bytes(), "abc");
            Ok::<_, BoxError>(if call == 0 {
                refused()
            } else {
                answer(200, &[])
            })
        }
    });
    let request = http::Request::put("http://api.example/")
        .body(frames(&["a", "bc"]))
        .unwrap();
    let response = PaceLayer::new()
        .layer(server)
        .oneshot(request)
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(calls.load(std::sync::atomic::Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_client_inside_is_not_tried_again_and_comes_as_it_is() {
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
    let error = PaceLayer::new()
        .layer(broken)
        .oneshot(request)
        .await
        .unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&Broken));
    assert_eq!(Instant::now(), before);
}
