//! Retries.

use std::{
    future::{Ready, ready},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::Response;
use tokio::time::{Instant, timeout};
use tollgate_client::{ClientRateLimitLayer, ReplayBody};
use tower::{BoxError, Layer, Service, ServiceExt, retry::budget::Budget, service_fn};

use crate::client::provider::{Provider, answer, client, get, request, send};

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
        (ClientRateLimitLayer::new().retries(0), 1),
    ] {
        let provider = Provider::new((0..9).map(|_| rejected()));
        let client = client(layer, &provider);
        assert_eq!(send(&client, get()).await.unwrap(), 429);
        assert_eq!(provider.calls(), calls);
    }
}

#[tokio::test(start_paused = true)]
async fn by_default_a_fifth_of_the_requests_and_ten_a_second_may_be_retried() {
    let provider = Provider::new((0..9_000).map(|_| answer(503, &[])));
    let client = client(ClientRateLimitLayer::new(), &provider);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..1_000 {
        let client = client.clone();
        tasks.spawn(async move { send(&client, get()).await.unwrap() });
    }
    assert_eq!(tasks.join_all().await, [503; 1_000]);
    // Two hundred, and ten for each of the ten seconds that count.
    assert_eq!(provider.calls(), 1_300);
}

#[tokio::test(start_paused = true)]
async fn each_request_pays_into_the_retry_budget_once_and_each_retry_is_paid_from_it() {
    #[derive(Clone, Default)]
    struct Paid {
        deposits: Arc<AtomicUsize>,
        withdrawals: Arc<AtomicUsize>,
    }
    impl Budget for Paid {
        fn deposit(&self) {
            self.deposits.fetch_add(1, Ordering::SeqCst);
        }

        fn withdraw(&self) -> bool {
            self.withdrawals.fetch_add(1, Ordering::SeqCst);
            true
        }
    }

    let provider = Provider::new([rejected(), rejected()]);
    let paid = Paid::default();
    let layer = ClientRateLimitLayer::new().retry_budget(paid.clone());
    let client = client(layer, &provider);
    for _ in 0..3 {
        assert_eq!(send(&client, get()).await.unwrap(), 200);
    }
    assert_eq!(paid.deposits.load(Ordering::SeqCst), 3);
    assert_eq!(paid.withdrawals.load(Ordering::SeqCst), 2);
}

#[test]
fn a_jitter_of_more_than_the_wait_is_refused() {
    assert!(ClientRateLimitLayer::new().retry_jitter(100).is_ok());
    let error = ClientRateLimitLayer::new().retry_jitter(101);
    let error = error.expect_err("it is too much").to_string();
    assert!(error.contains("101 %"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn up_to_64_kib_of_a_body_are_kept_by_default() {
    for (bytes, expected) in [(64 << 10, 200), (64 << 10 | 1, 429)] {
        let provider = Provider::new([rejected()]);
        let client = client(ClientRateLimitLayer::new(), &provider);
        let upload = request("PUT", "/", &"x".repeat(bytes));
        assert_eq!(send(&client, upload).await.unwrap(), expected, "{bytes}");
    }
}

/// An inner client that is ready once, rejects its request, and then is what `then` says.
#[derive(Clone)]
struct ReadyOnce {
    calls: Arc<AtomicUsize>,
    then: fn() -> Poll<Result<(), BoxError>>,
}

impl<B> Service<http::Request<B>> for ReadyOnce {
    type Response = Response<()>;
    type Error = BoxError;
    type Future = Ready<Result<Response<()>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self.calls.load(Ordering::SeqCst) {
            0 => Poll::Ready(Ok(())),
            _ => (self.then)(),
        }
    }

    fn call(&mut self, _: http::Request<B>) -> Self::Future {
        self.calls.fetch_add(1, Ordering::SeqCst);
        ready(Ok(rejected()))
    }
}

#[tokio::test(start_paused = true)]
async fn if_the_inner_client_is_not_ready_for_a_retry_the_caller_gets_the_rejection() {
    for (then, seconds) in [
        ((|| Poll::Pending) as fn() -> _, 5..=5),
        (|| Poll::Ready(Err("it is gone".into())), 1..=1),
    ] {
        let calls = Arc::new(AtomicUsize::new(0));
        let inner = ReadyOnce {
            calls: Arc::clone(&calls),
            then,
        };
        let layer = ClientRateLimitLayer::new().max_wait(Duration::from_secs(5));
        let before = Instant::now();
        let sent = layer.layer(inner).oneshot(get());
        let response = timeout(Duration::from_secs(60), sent).await;
        assert_eq!(response.expect("an answer").unwrap().status(), 429);
        assert!(seconds.contains(&before.elapsed().as_secs()));
        assert_eq!(calls.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejection_is_dropped_before_its_request_is_sent_again() {
    let body = Arc::new(());
    let held = Arc::downgrade(&body);
    let first = Arc::new(Mutex::new(Some(body)));
    let inner = service_fn(move |_: http::Request<ReplayBody<String>>| {
        let rejects = first.lock().unwrap().take();
        let (status, body) = match rejects {
            Some(body) => (503, body),
            None => {
                assert_eq!(held.strong_count(), 0);
                (200, Arc::new(()))
            }
        };
        let response = Response::builder().status(status).body(body);
        async move { response }
    });
    let request = http::Request::get("/").body(String::new()).unwrap();
    let client = ClientRateLimitLayer::new().layer(inner);
    assert_eq!(client.oneshot(request).await.unwrap().status(), 200);
}
