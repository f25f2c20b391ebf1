//! A server with limits on a socket, and clients that obey them.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, routing};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
    time::timeout,
};
use tokio_stream::wrappers::ReceiverStream;
use tollgate::{HeaderStyle, MemoryStore, Quota, RateLimitLayer, Rule, SECOND, key::constant};
use tollgate_client::{ClientRateLimit, ClientRateLimitLayer, ReplayBody};
use tollgate_tests::server::{Server, counting_denials};
use tower::{BoxError, ServiceBuilder, ServiceExt};

type Hyper = Client<HttpConnector, ReplayBody<Full<bytes::Bytes>>>;

/// A server that takes a few requests a second, and counts those that it denies.
struct Limited {
    server: Server,
    denied: Arc<AtomicU64>,
}

impl Limited {
    async fn start(quota: Quota, style: HeaderStyle) -> Self {
        let rule = Rule::new("few", quota).by(constant("all"));
        let limits = RateLimitLayer::new(MemoryStore::new(), [rule]).unwrap();
        let limits = limits.headers(style).unwrap();
        let echo = routing::any(|body: String| async move { body });
        let (app, denied) = counting_denials(Router::new().route("/", echo).layer(limits));
        Self {
            server: Server::start(app).await,
            denied,
        }
    }

    fn denied(&self) -> u64 {
        self.denied.load(Ordering::SeqCst)
    }

    fn uri(&self) -> String {
        format!("http://{}/", self.server.address())
    }
}

fn client() -> ClientRateLimit<Hyper> {
    ServiceBuilder::new()
        .layer(ClientRateLimitLayer::new())
        .service(Client::builder(TokioExecutor::new()).build(HttpConnector::new()))
}

async fn send(client: &ClientRateLimit<Hyper>, uri: &str, body: &'static str) -> u16 {
    let request = Request::put(uri).body(Full::from(body)).unwrap();
    let response = client.clone().oneshot(request).await.unwrap();
    response.status().as_u16()
}

fn styles() -> [HeaderStyle; 5] {
    [
        HeaderStyle::DRAFT_11,
        HeaderStyle::DRAFT_7,
        HeaderStyle::DRAFT_6,
        HeaderStyle::X_RATELIMIT_EPOCH,
        HeaderStyle::X_RATELIMIT_DELTA,
    ]
}

/// Learns from one answer, then sends fifty requests at once.
async fn learns_and_is_not_denied(quota: Quota, style: HeaderStyle) {
    let limited = Limited::start(quota, style).await;
    let (client, uri) = (client(), limited.uri());
    assert_eq!(send(&client, &uri, "first").await, 200);
    let mut tasks = JoinSet::new();
    for _ in 0..50 {
        let (client, uri) = (client.clone(), uri.clone());
        tasks.spawn(async move { send(&client, &uri, "more").await });
    }
    assert_eq!(tasks.join_all().await, [200; 50], "{style:?}");
    assert_eq!(limited.denied(), 0, "{style:?}");
}

#[tokio::test]
async fn a_client_that_knows_the_budget_is_never_denied() {
    // All at the same time: each takes seconds.
    let mut servers = JoinSet::new();
    for style in styles() {
        for quota in [Quota::gcra(20, SECOND), Quota::fixed_window(20, SECOND)] {
            servers.spawn(learns_and_is_not_denied(quota, style));
        }
    }
    servers.join_all().await;
}

#[tokio::test]
async fn before_the_first_response_each_request_is_denied_at_most_once() {
    let limited = Limited::start(Quota::gcra(20, SECOND), HeaderStyle::DRAFT_11).await;
    let (client, uri) = (client(), limited.uri());
    let mut tasks = JoinSet::new();
    for _ in 0..50 {
        let (client, uri) = (client.clone(), uri.clone());
        tasks.spawn(async move { send(&client, &uri, "at once").await });
    }
    assert_eq!(tasks.join_all().await, [200; 50]);
    assert!(limited.denied() <= 50, "{}", limited.denied());
}

#[tokio::test]
async fn with_retry_after_alone_all_requests_succeed_eventually() {
    let limited = Limited::start(Quota::gcra(20, SECOND), HeaderStyle::NONE).await;
    let (client, uri) = (client(), limited.uri());
    let mut tasks = JoinSet::new();
    for _ in 0..40 {
        let (client, uri) = (client.clone(), uri.clone());
        tasks.spawn(async move { send(&client, &uri, "at once").await });
    }
    assert_eq!(tasks.join_all().await, [200; 40]);
    // Twenty pass, twenty are denied and pass a second later.
    assert!(limited.denied() <= 40, "{}", limited.denied());
}

#[tokio::test]
async fn a_stream_rejected_half_way_is_replayed_and_continues() {
    let refused = Arc::new(Notify::new());
    let (calls, refuses) = (Arc::new(AtomicU64::new(0)), Arc::clone(&refused));
    let handler = move |request: Request<Body>| {
        let (first, refuses) = (calls.fetch_add(1, Ordering::SeqCst) == 0, refuses.clone());
        async move {
            if first {
                refuses.notify_one();
                // Nothing was read of the body.
                return (StatusCode::SERVICE_UNAVAILABLE, Body::empty());
            }
            (StatusCode::OK, request.into_body())
        }
    };
    let server = Server::start(Router::new().route("/", routing::put(handler))).await;

    let (parts, stream) = mpsc::channel::<Result<Frame<bytes::Bytes>, Infallible>>(4);
    let body = StreamBody::new(ReceiverStream::new(stream));
    let uri = format!("http://{}/", server.address());
    let client = ServiceBuilder::new()
        .layer(ClientRateLimitLayer::new())
        .service(Client::builder(TokioExecutor::new()).build(HttpConnector::new()));
    let part = |part: &'static str| Ok(Frame::data(bytes::Bytes::from_static(part.as_bytes())));
    parts.send(part("first, ")).await.unwrap();
    let answer = tokio::spawn(client.oneshot(Request::put(uri).body(body).unwrap()));
    let hangs = Duration::from_secs(20);
    timeout(hangs, refused.notified()).await.expect("a refusal");
    parts.send(part("second")).await.unwrap();
    drop(parts);

    let answer = answer.await.unwrap().unwrap();
    assert_eq!(answer.status(), 200);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "first, second");
}

#[tokio::test]
async fn reqwest_works_as_the_inner_client() {
    let limited = Limited::start(Quota::fixed_window(2, SECOND), HeaderStyle::DRAFT_11).await;
    let reqwest = reqwest::Client::new();
    let client = ServiceBuilder::new()
        .layer(ClientRateLimitLayer::new().max_wait(Duration::from_secs(20)))
        .service_fn(move |request: Request<ReplayBody<Full<bytes::Bytes>>>| {
            let request = reqwest::Request::try_from(request.map(reqwest::Body::wrap));
            let client = reqwest.clone();
            async move { Ok::<_, BoxError>(Response::from(client.execute(request?).await?)) }
        });
    for number in 0..5 {
        let body = Full::from(format!("request {number}"));
        let request = Request::put(limited.uri()).body(body).unwrap();
        let response = client.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        let answer = reqwest::Response::from(response).text().await.unwrap();
        assert_eq!(answer, format!("request {number}"));
    }
    assert_eq!(limited.denied(), 0);
}
