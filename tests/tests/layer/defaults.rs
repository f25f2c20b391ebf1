//! Settings that are made once for all layers of a service.

use std::time::Duration;

use axum::{Router, body::Body, routing::any};
use http::{Method, Request, Response, StatusCode, request};
use tokio::time::Instant;
use tollgate::{
    Decision, MINUTE, Quota, RateLimitLayer, Rejection, RequestRule,
    error::RuleErrorKind,
    header::HeaderStyle,
    key::{PeerAddr, header, look_up},
    message::{MessageBody, MessageLimitLayer},
    rejection::Protocol,
    service::LayerDefaults,
};
use tollgate_tests::app::{all, behind, get, per_minute, send, status, still, text};
use tower::{Layer, ServiceExt, service_fn};

fn rules() -> [RequestRule; 1] {
    [per_minute("one-each", 1).by(header("x-api-key"))]
}

/// Requests of several clients, a call of gRPC, and a preflight.
fn requests() -> Vec<request::Builder> {
    let mut requests: Vec<_> = (0..8)
        .map(|n| get("/").header("x-api-key", format!("k{n}")))
        .collect();
    let grpc = get("/a.B/C").method(Method::POST);
    requests.push(grpc.header("content-type", "application/grpc"));
    let preflight = get("/").method(Method::OPTIONS);
    let preflight = preflight.header("origin", "https://a.example");
    requests.push(preflight.header("access-control-request-method", "PUT"));
    requests
}

/// What each of the requests gets.
async fn answers(layer: RateLimitLayer) -> Vec<String> {
    let app = Router::new().fallback(any(|| async {})).layer(layer);
    let mut answers = Vec::new();
    for request in requests() {
        let answer = send(&app, request).await;
        let decision = answer.extensions().get::<Decision>().is_some();
        let head = format!("{} {:?} {decision}", answer.status(), answer.headers());
        answers.push(format!("{head} {}", text(answer).await));
    }
    answers
}

const FIELDS: HeaderStyle = HeaderStyle::X_RATELIMIT_DELTA;

#[tokio::test]
async fn a_layer_has_the_settings_of_its_defaults_as_if_they_were_its_own() {
    let store = still().0;
    let layer = || RateLimitLayer::new(store.clone(), rules()).unwrap();
    // All clients have used their unit.
    answers(layer()).await;
    let plain = answers(layer()).await;
    let own = layer()
        .headers(FIELDS)
        .unwrap()
        .rejection(Rejection::text());
    let own = answers(own.attach_decision().count_preflight()).await;
    assert_ne!(own, plain);
    let defaults = LayerDefaults::new(store.clone()).headers(FIELDS).unwrap();
    let defaults = defaults.rejection(Rejection::text());
    let defaults = defaults.attach_decision().count_preflight();
    assert_eq!(answers(defaults.layer(rules()).unwrap()).await, own);
    let changed = defaults.hide_quota().layer(rules()).unwrap();
    assert_ne!(answers(changed).await, own);
}

#[tokio::test(start_paused = true)]
async fn look_ups_of_all_layers_have_the_deadline_of_the_defaults() {
    let deadline = Duration::from_millis(30);
    let defaults = LayerDefaults::new(still().0).look_up_deadline(deadline);
    let lost = look_up(|_| std::future::pending::<Option<String>>());
    let app = behind(defaults.layer([per_minute("lost", 9).by(lost)]).unwrap());
    let before = Instant::now();
    assert_eq!(status(&app, "/").await, 200);
    assert_eq!(before.elapsed(), deadline);
}

#[tokio::test]
async fn a_layer_for_messages_has_the_settings_that_it_knows() {
    let store = still().0;
    let rules = || [all(per_minute("messages", 1))];
    let denied = async |layer: MessageLimitLayer| {
        let read = |request: Request<MessageBody<Body>>| async move {
            let body = axum::body::to_bytes(Body::new(request.into_body()), 64).await;
            body.map(|_| Response::new(Body::empty()))
        };
        let service = layer.layer(service_fn(read));
        let request = Request::post("/a.B/C").header("content-type", "application/grpc");
        let request = request.body(Body::from([0; 10].to_vec())).unwrap();
        let answer = service.oneshot(request).await.unwrap();
        format!("{:?}", answer.headers())
    };
    let layer = || MessageLimitLayer::new(store.clone(), rules()).unwrap();
    let plain = denied(layer()).await;
    let own = layer()
        .headers(FIELDS)
        .unwrap()
        .retry_after_jitter(100)
        .unwrap();
    let defaults = LayerDefaults::new(store.clone()).headers(FIELDS).unwrap();
    // Of requests alone.
    let defaults = defaults.protocol(Protocol::Http).count_preflight();
    let defaults = defaults.retry_after_jitter(100).unwrap();
    let expected = denied(own).await;
    assert_ne!(expected, plain);
    assert_eq!(
        denied(defaults.message_layer(rules()).unwrap()).await,
        expected
    );
    let hidden = defaults.hide_quota().message_layer(rules()).unwrap();
    assert!(!denied(hidden).await.contains("messages"));
}

#[test]
fn a_default_that_cannot_be_is_refused_where_it_is_set() {
    let defaults = || LayerDefaults::new(still().0);
    let both = HeaderStyle::DRAFT_11 | HeaderStyle::DRAFT_7;
    for (error, word) in [
        (defaults().headers(both), "DRAFT_7"),
        (defaults().denied_status(StatusCode::OK), "200"),
        (defaults().retry_after_jitter(101), "101 %"),
    ] {
        let error = error.expect_err("it cannot be");
        assert_eq!(error.kind(), RuleErrorKind::RuleSet);
        assert!(error.to_string().contains(word), "{error}");
    }
    assert!(defaults().layer([all(per_minute("off", 1).off())]).is_err());
}

#[tokio::test]
async fn one_call_limits_each_address() {
    let layer = RateLimitLayer::per_ip(2, MINUTE).unwrap();
    let limiter = layer.limiter();
    let rule = &limiter.rules().rules()[0];
    assert_eq!(
        (rule.name(), *rule.quota()),
        ("per-ip", Quota::gcra(2, MINUTE))
    );
    let app = behind(layer);
    let other = || {
        let peer = PeerAddr(([198, 51, 100, 7], 40_000).into());
        Request::get("/").extension(peer)
    };
    for expected in [200, 200, 429] {
        assert_eq!(status(&app, "/").await, expected);
        assert_eq!(status(&app, other()).await, expected);
    }
    // Another such layer counts apart.
    let again = behind(RateLimitLayer::per_ip(2, MINUTE).unwrap());
    assert_eq!(status(&again, "/").await, 200);
    let error = RateLimitLayer::per_ip(0, MINUTE).expect_err("it never lets anything pass");
    assert!(error.to_string().contains("limit of 0"), "{error}");
}
