//! Our client and our server, both with default settings, over HTTP in memory with paused time.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{Router, routing};
use http::Request;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    io::DuplexStream,
    sync::{Mutex, mpsc},
    time::Instant,
};
use tollgate::{
    Key, Limiter, MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, SECOND,
    clock::{Clock, ManualClock},
    decision::Retry,
    header::HeaderStyle,
    key::constant,
};
use tollgate_client::{ClientRateLimitLayer, ReplayBody};
use tollgate_tests::server::counting_denials;
use tower::{BoxError, ServiceBuilder, ServiceExt};

/// The start of a minute.
const START: u64 = 1_700_000_040_000_000;

/// One of each algorithm; none makes a request wait longer than the default `max_wait`.
fn quotas() -> [Quota; 11] {
    let window = 10 * SECOND;
    [
        Quota::gcra(60, MINUTE),
        Quota::gcra(100, MINUTE).burst(3),
        // Units come back sooner than in a second.
        Quota::gcra(10, SECOND).burst(1),
        Quota::token_bucket(5).refill(100, SECOND),
        Quota::fixed_window(4, SECOND / 4),
        Quota::token_bucket(20).refill(7, window),
        Quota::leaky_bucket(5).leak(2, SECOND),
        Quota::fixed_window(10, window),
        Quota::sliding_window(10, window),
        Quota::sliding_buckets(10, window),
        Quota::sliding_log(10, window),
    ]
}

/// The other end of the pipes that clients open.
struct Pipes(mpsc::Receiver<DuplexStream>);

impl axum::serve::Listener for Pipes {
    type Io = DuplexStream;
    type Addr = ();

    async fn accept(&mut self) -> (DuplexStream, ()) {
        match self.0.recv().await {
            Some(pipe) => (pipe, ()),
            // No task is left to open another.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection to a server with this limit, and how often that has denied.
async fn server(
    quota: Quota,
    cost: u64,
    set: impl FnOnce(RateLimitLayer) -> RateLimitLayer,
) -> (
    http1::SendRequest<ReplayBody<Full<bytes::Bytes>>>,
    Arc<AtomicU64>,
) {
    let since = Instant::now();
    let clock = Clock::custom(move || START + since.elapsed().as_micros() as u64);
    let store = MemoryStore::builder().clock(clock).build();
    let rule = Rule::new("calls", quota).cost(cost).by(constant("all"));
    let limits = set(RateLimitLayer::new(store, [rule]).unwrap());
    let hello = routing::get(|| async { "hello" });
    let (app, denied) = counting_denials(Router::new().route("/", hello).layer(limits));
    let (open, pipes) = mpsc::channel(1);
    tokio::spawn(async move { axum::serve(Pipes(pipes), app).await });
    let (near, far) = tokio::io::duplex(1 << 16);
    open.send(far).await.unwrap();
    let (send, connection) = http1::handshake(TokioIo::new(near)).await.unwrap();
    tokio::spawn(connection);
    (send, denied)
}

/// When each of so many requests is answered, one after the other, by a client without a setting.
async fn paced(
    quota: Quota,
    (requests, cost): (u64, u64),
    set: impl FnOnce(RateLimitLayer) -> RateLimitLayer,
) -> (Vec<Duration>, u64) {
    let (send, denied) = server(quota, cost, set).await;
    let send = Arc::new(Mutex::new(send));
    let client = ServiceBuilder::new()
        .layer(ClientRateLimitLayer::new())
        .service_fn(move |request| {
            let send = Arc::clone(&send);
            async move {
                let mut send = send.lock().await;
                send.ready().await?;
                Ok::<_, BoxError>(send.send_request(request).await?)
            }
        });
    let start = Instant::now();
    let mut answered = Vec::new();
    for number in 0..requests {
        let request = Request::get("http://server.example/").body(Full::default());
        let response = client.clone().oneshot(request.unwrap()).await;
        let response =
            response.unwrap_or_else(|error| panic!("{quota:?}, request {number}: {error}"));
        assert_eq!(response.status(), 200, "{quota:?}, request {number}");
        answered.push(start.elapsed());
    }
    (answered, denied.load(Ordering::SeqCst))
}

/// The same with the limiter alone: each request is sent when `retry` of the previous one has passed, rounded up to `precision`.
fn ideal(quota: Quota, requests: u64, precision: Duration) -> Vec<Duration> {
    let clock = ManualClock::new(START);
    let store = MemoryStore::builder().clock(&clock).build();
    let limiter = Limiter::new(store, [Rule::new("calls", quota)]).unwrap();
    let check = limiter.check("calls", &Key::of(["all"])).unwrap();
    let mut answered = Vec::new();
    for _ in 0..requests {
        let decision = limiter
            .acquire(&[check])
            .ready()
            .expect("memory answers at once");
        assert!(decision.is_allowed(), "{quota:?}: {decision:?}");
        answered.push(Duration::from_micros(clock.now() - START));
        if let Retry::After(wait) = decision.verdicts()[0].retry() {
            let times = wait.as_micros().div_ceil(precision.as_micros()) as u32;
            clock.advance(precision * times);
        }
    }
    answered
}

#[tokio::test(start_paused = true)]
async fn a_default_client_is_never_denied_by_any_algorithm() {
    for quota in quotas() {
        let requests = quota.limit() + 25;
        let (answered, denied) = paced(quota, (requests, 1), |limits| limits).await;
        assert_eq!(denied, 0, "{quota:?}");
        let millis = Duration::from_millis(1);
        assert_eq!(answered, ideal(quota, requests, millis), "{quota:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_header_style_works() {
    for style in [
        HeaderStyle::DRAFT_11,
        HeaderStyle::DRAFT_7,
        HeaderStyle::DRAFT_6,
        HeaderStyle::X_RATELIMIT_DELTA,
    ] {
        for quota in [Quota::gcra(60, MINUTE), Quota::sliding_log(10, 10 * SECOND)] {
            let requests = quota.limit() + 5;
            let set = |limits: RateLimitLayer| limits.headers(style).unwrap();
            let (answered, denied) = paced(quota, (requests, 1), set).await;
            assert_eq!(denied, 0, "{style:?}: {quota:?}");
            let ideal = ideal(quota, requests, SECOND);
            assert_eq!(answered, ideal, "{style:?}: {quota:?}");
        }
    }
}

/// It cannot know what a request costs: if units are left it tries, is denied, and returns after `Retry-After`.
#[tokio::test(start_paused = true)]
async fn requests_that_cost_more_than_is_left_succeed_eventually() {
    for quota in quotas().into_iter().filter(|quota| quota.limit() >= 5) {
        let (answered, denied) = paced(quota, (20, 4), |limits| limits).await;
        assert!(
            answered.len() == 20 && denied <= 20,
            "{quota:?}: {denied} of {answered:?}"
        );
    }
}
