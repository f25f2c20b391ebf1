//! A server with limits on a socket, and clients that obey them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, UNIX_EPOCH},
};

use axum::{Router, body::Body, routing};
use http::{Request, Response};
use http_body_util::Full;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tollgate::{MemoryStore, Quota, RateLimitLayer, Rule, SECOND, clock::Clock, key::constant};
use tollgate_client::{
    ClientRateLimitError, ClientRateLimitErrorKind, ClientRateLimitLayer, ReplayBody,
};
use tollgate_tests::server::{Server, counting_denials};
use tower::{BoxError, ServiceBuilder, ServiceExt};

#[tokio::test]
async fn a_client_that_is_blocked_stops_until_the_end_of_the_block() {
    let mut app = Router::new().route("/", routing::get(|| async {}));
    let calls = Arc::new(AtomicU64::new(0));
    let now = UNIX_EPOCH + Duration::from_micros(Clock::system().now());
    let rule = Rule::new("blocked", Quota::none().until(now + 500 * SECOND));
    let limits = RateLimitLayer::new(MemoryStore::new(), [rule.by(constant("all"))]).unwrap();
    let counted = Arc::clone(&calls);
    app = app.layer(limits).layer(axum::middleware::map_request(
        move |request: Request<Body>| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move { request }
        },
    ));
    let server = Server::start(app).await;
    for is_grpc in [false, true] {
        let client = ServiceBuilder::new()
            .layer(ClientRateLimitLayer::new())
            .service(Client::builder(TokioExecutor::new()).build(HttpConnector::new()));
        let ask = || {
            let mut request = Request::get(format!("http://{}/", server.address()));
            if is_grpc {
                request = request
                    .method("POST")
                    .header("content-type", "application/grpc");
            }
            let request = request.body(Full::<bytes::Bytes>::default()).unwrap();
            client.clone().oneshot(request)
        };
        let denied = ask().await.unwrap();
        assert_eq!(denied.status(), if is_grpc { 200 } else { 403 });
        let before = calls.load(Ordering::SeqCst);
        let error = ask()
            .await
            .expect_err("it is blocked for longer than it waits");
        let error = error
            .downcast_ref::<ClientRateLimitError>()
            .expect("a limit");
        assert_eq!(error.kind(), ClientRateLimitErrorKind::ServerLimit);
        assert!(error.retry_after() > Some(400 * SECOND), "{error:?}");
        assert_eq!(
            calls.load(Ordering::SeqCst),
            before,
            "the server is left alone"
        );
    }
}

#[tokio::test]
async fn reqwest_works_as_the_inner_client() {
    let rule = Rule::new("few", Quota::fixed_window(2, SECOND)).by(constant("all"));
    let limits = RateLimitLayer::new(MemoryStore::new(), [rule]).unwrap();
    let echo = routing::any(|body: String| async move { body });
    let (app, denied) = counting_denials(Router::new().route("/", echo).layer(limits));
    let server = Server::start(app).await;
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
        let request = Request::put(format!("http://{}/", server.address()))
            .body(body)
            .unwrap();
        let response = client.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        let answer = reqwest::Response::from(response).text().await.unwrap();
        assert_eq!(answer, format!("request {number}"));
    }
    assert_eq!(denied.load(Ordering::SeqCst), 0);
}
