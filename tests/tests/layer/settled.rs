//! Requests that are settled by their responses: what counts, and what it costs.

use std::{
    convert::Infallible,
    future::{Future, pending, ready},
    task::{Context, Waker},
};

use axum::{Extension, Router, body::Body, response::IntoResponse, routing};
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header::CONTENT_TYPE,
};
use http_body::Frame;
use http_body_util::BodyExt;
use tollgate::{
    Admission, MINUTE, Quota, RateLimitLayer, RequestRule, Rule,
    header::HeaderStyle,
    key::header,
    rejection::Protocol,
    service::{Refund, ResponseBody},
};
use tollgate_conformance::SwitchedStore;
use tollgate_tests::{
    app::{self, field, get, layer, per_minute, send, status, stores},
    frames::{FrameResult, Frames, data},
    server::Server,
};
use tower::{Layer, ServiceExt, service_fn};

fn each(limit: u64) -> RequestRule {
    per_minute("each", limit).by(header("x-client"))
}

/// Counts only 401.
fn failures(limit: u64) -> RequestRule {
    each(limit).count_if(|response| response.status() == StatusCode::UNAUTHORIZED)
}

fn on(store: SwitchedStore, rules: impl IntoIterator<Item = RequestRule>) -> RateLimitLayer {
    RateLimitLayer::new(store, rules).expect("valid rules")
}

/// Answers with the status that the request asks for.
async fn as_asked(headers: HeaderMap) -> impl IntoResponse {
    let status = headers.get("x-status").expect("a status").to_str();
    let status: u16 = status.expect("text").parse().expect("a number");
    let mut fields = HeaderMap::new();
    if let Some(used) = headers.get("x-used") {
        fields.insert("x-units", used.clone());
    }
    (StatusCode::from_u16(status).expect("a status"), fields)
}

fn app(limits: RateLimitLayer) -> Router {
    Router::new()
        .route("/", routing::any(as_asked))
        .layer(limits)
}

fn asking(status: u16) -> http::request::Builder {
    get("/")
        .header("x-client", "ann")
        .header("x-status", status)
}

fn left(limits: &RateLimitLayer) -> u64 {
    app::left(limits, "each", asking(200))
}

#[tokio::test(start_paused = true)]
async fn only_responses_that_count_use_the_limit() {
    for store in stores() {
        let limits = on(store, [failures(2)]);
        let app = app(limits.clone());
        for _ in 0..5 {
            assert_eq!(status(&app, asking(200)).await, 200);
        }
        assert_eq!(left(&limits), 2);
        assert_eq!(status(&app, asking(401)).await, 401);
        assert_eq!(status(&app, asking(200)).await, 200);
        assert_eq!(status(&app, asking(401)).await, 401);
        // Two failures: now no request gets to the service.
        assert_eq!(status(&app, asking(200)).await, 429);
        assert_eq!(left(&limits), 0);
    }
}

#[tokio::test]
async fn a_request_takes_before_it_is_served() {
    let limits = layer([failures(2)]);
    let service = limits.layer(service_fn(|_: Request<Body>| {
        pending::<Result<Response<Body>, Infallible>>()
    }));
    let call = || {
        service
            .clone()
            .oneshot(asking(200).body(Body::empty()).unwrap())
    };
    let mut in_flight = [Box::pin(call()), Box::pin(call())];
    let context = &mut Context::from_waker(Waker::noop());
    for future in &mut in_flight {
        assert!(future.as_mut().poll(context).is_pending());
    }
    // Whatever their responses will be.
    let denied = call().await.unwrap();
    assert_eq!(denied.status(), 429);
    // A client that goes away before its response cannot know whether it counts: it does.
    drop(in_flight);
    assert_eq!(left(&limits), 0);
}

#[tokio::test]
async fn an_inner_error_is_a_response() {
    for (rule, expected) in [
        (failures(2), 2),
        (each(2).count_if(|response| response.is_failure()), 1),
        (each(2).count_if(|response| response.is_error()), 1),
        (each(2).count_if(|response| response.status() == 500), 1),
        (failures(2).keep_on_error(), 1),
        (each(2).cost_by_response(|_| None), 2),
        (each(2).cost_by_response(|_| None).keep_on_error(), 1),
        (each(2).cost_by_response(|_| Some(2)), 0),
    ] {
        let limits = layer([rule]);
        let failing = service_fn(|_: Request<Body>| async { Err::<Response<Body>, _>("failed") });
        let call = limits
            .layer(failing)
            .oneshot(asking(200).body(Body::empty()).unwrap());
        assert!(call.await.is_err());
        assert_eq!(left(&limits), expected);
    }
}

#[tokio::test]
async fn a_response_with_refund_does_not_count() {
    for (rule, expected) in [
        (each(2).count_if(|response| response.is_failure()), 2),
        (
            each(2)
                .count_if(|response| response.is_failure())
                .keep_on_error(),
            1,
        ),
    ] {
        let limits = layer([rule]);
        let shed = routing::get(|| async { (StatusCode::SERVICE_UNAVAILABLE, Extension(Refund)) });
        let app = Router::new().route("/", shed).layer(limits.clone());
        assert_eq!(status(&app, asking(200)).await, 503);
        assert_eq!(left(&limits), expected);
    }
}

#[tokio::test]
async fn a_request_that_another_rule_denies_counts_in_a_shadow() {
    let shadow = per_minute("trial", 5)
        .shadow()
        .by(header("x-client"))
        .count_if(|response| response.is_failure());
    let limits = layer([each(1), shadow]);
    let app = app(limits.clone());
    assert_eq!(status(&app, asking(200)).await, 200);
    assert_eq!(app::left(&limits, "trial", asking(200)), 5);
    assert_eq!(status(&app, asking(200)).await, 429);
    assert_eq!(app::left(&limits, "trial", asking(200)), 4);
}

#[tokio::test]
async fn a_taken_ticket_is_settled_by_its_handler_alone() {
    async fn handler(admission: Admission) -> &'static str {
        admission.ticket().keep();
        "counted all the same"
    }
    let limits = layer([failures(5)]).attach_decision();
    let app = Router::new()
        .route("/", routing::get(handler))
        .layer(limits.clone());
    let answer = send(&app, asking(200)).await;
    assert_eq!(field(&answer, "ratelimit"), r#""each";r=4;t=60"#);
    assert_eq!(left(&limits), 4);
}

#[tokio::test]
async fn it_does_not_depend_on_the_quota_fields() {
    let change: [fn(RateLimitLayer) -> RateLimitLayer; 3] = [
        RateLimitLayer::hide_quota,
        RateLimitLayer::attach_decision,
        |layer| layer.headers(HeaderStyle::NONE).expect("a style"),
    ];
    for change in change {
        let limits = change(layer([failures(2).keep_on_error()]));
        let app = app(limits.clone());
        status(&app, asking(200)).await;
        assert_eq!(left(&limits), 2);
        status(&app, asking(401)).await;
        assert_eq!(left(&limits), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_settles_to_its_cost() {
    for store in stores() {
        let rule = Rule::new("each", Quota::sliding_window(100, MINUTE))
            .cost(10)
            .by(header("x-client"))
            .cost_by_response(|response| response.header("x-units")?.parse().ok());
        let limits = on(store, [rule]);
        let app = app(limits.clone());
        let mut expected = 100;
        // Less, nothing, as much, more; a field that is no number or is missing leaves what was taken.
        for (used, cost) in [("3", 3), ("0", 0), ("10", 10), ("25", 25), ("many", 10)] {
            let answer = send(&app, asking(200).header("x-used", used)).await;
            expected -= cost;
            assert_eq!(left(&limits), expected, "{used}");
            let is_shown = field(&answer, "ratelimit").contains("each");
            assert_eq!(is_shown, cost == 10, "{used}");
        }
        send(&app, asking(200)).await;
        assert_eq!(left(&limits), expected - 10);
        // What is not there cannot be taken.
        send(&app, asking(200).header("x-used", "1000")).await;
        assert_eq!(left(&limits), 0);
    }
}

#[tokio::test]
async fn count_if_goes_before_a_cost() {
    let rule = each(20)
        .count_if(|response| !response.is_failure())
        .cost_by_response(|_| Some(4));
    let limits = layer([rule]);
    let app = app(limits.clone());
    for (status_code, expected) in [(500, 20), (200, 16)] {
        status(&app, asking(status_code)).await;
        assert_eq!(left(&limits), expected, "{status_code}");
    }
}

// gRPC

fn trailers(status: &'static str) -> FrameResult {
    Ok(Frame::trailers(HeaderMap::from_iter([(
        HeaderName::from_static("grpc-status"),
        HeaderValue::from_static(status),
    )])))
}

const GRPC: (&str, &str) = ("content-type", "application/grpc");

/// A call to a service that responds with these header fields and frames.
async fn call(
    limits: &RateLimitLayer,
    fields: &'static [(&'static str, &'static str)],
    frames: fn() -> Vec<FrameResult>,
) -> Response<ResponseBody<Frames>> {
    let service = service_fn(move |_: Request<Body>| {
        let mut response = Response::builder();
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        let response = response.body(Frames {
            frames: frames(),
            knows_end: false,
        });
        ready(Ok::<_, Infallible>(response.expect("a response")))
    });
    let request = asking(200).method("POST").body(Body::empty()).unwrap();
    limits.layer(service).oneshot(request).await.unwrap()
}

fn unauthenticated(limit: u64) -> RequestRule {
    each(limit).count_if(|response| response.grpc_status() == Some(16))
}

#[tokio::test]
async fn a_grpc_status_in_the_header_is_settled_at_once() {
    for (fields, expected) in [
        (&[GRPC, ("grpc-status", "0")], 5),
        (&[GRPC, ("grpc-status", "16")], 4),
    ] {
        let limits = layer([unauthenticated(5)]);
        let answer = call(&limits, fields, Vec::new).await;
        assert_eq!(left(&limits), expected);
        assert_eq!(answer.headers().contains_key("ratelimit"), expected == 4);
    }
}

#[tokio::test]
async fn a_grpc_status_in_the_trailers_is_settled_with_them() {
    let (ok, failed) = (
        || vec![data(), data(), trailers("0")],
        || vec![data(), data(), trailers("16")],
    );
    for (frames, expected) in [(ok as fn() -> _, 5), (failed, 4)] {
        let limits = layer([unauthenticated(5)]);
        let mut answer = call(&limits, &[GRPC], frames).await;
        // Not known yet, so nothing is told.
        assert!(!answer.headers().contains_key("ratelimit"));
        for _ in 0..2 {
            assert!(answer.frame().await.unwrap().unwrap().is_data());
            assert_eq!(left(&limits), 4);
        }
        assert!(answer.frame().await.unwrap().unwrap().is_trailers());
        assert_eq!(left(&limits), expected);
        assert!(answer.frame().await.is_none());
        drop(answer);
        assert_eq!(left(&limits), expected);
    }
}

#[tokio::test]
async fn a_call_that_is_settled_with_its_trailers_holds_its_slot_until_then() {
    let at_once = Rule::new("at-once", Quota::concurrent(1)).by(header("x-client"));
    let limits = layer([unauthenticated(5), at_once]);
    let frames = || vec![data(), trailers("16")];
    let another = async || call(&limits, &[GRPC], frames).await.status();
    let mut answer = call(&limits, &[GRPC], frames).await;
    assert!(answer.frame().await.unwrap().unwrap().is_data());
    assert_eq!(another().await, StatusCode::TOO_MANY_REQUESTS);
    assert!(answer.frame().await.unwrap().unwrap().is_trailers());
    assert_eq!(left(&limits), 4);
    assert_eq!(another().await, StatusCode::OK);
}

#[tokio::test]
async fn a_cost_is_read_from_trailers() {
    fn frames() -> Vec<FrameResult> {
        let fields = [("grpc-status", "0"), ("x-units", "3")].map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        vec![data(), Ok(Frame::trailers(HeaderMap::from_iter(fields)))]
    }
    let rule = each(9).cost_by_response(|response| response.header("x-units")?.parse().ok());
    let limits = layer([rule]);
    let answer = call(&limits, &[GRPC, ("x-units", "7")], frames).await;
    answer.into_body().collect().await.expect("a body");
    assert_eq!(left(&limits), 6);
}

/// A server drops a body that has ended, and does not poll it.
#[tokio::test]
async fn a_grpc_call_without_a_status_or_a_body_is_settled() {
    let limits = layer([each(5).count_if(|response| !response.is_failure())]);
    let unavailable = service_fn(|_: Request<Body>| {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        ready(Ok::<_, Infallible>(response))
    });
    let app = Router::new().fallback_service(limits.layer(unavailable));
    let server = Server::start(app).await;
    for _ in 0..3 {
        let answer = server.send("GET", "/", &[("x-client", "ann")]).await;
        assert_eq!(answer.status, 503);
    }
    assert_eq!(left(&limits), 5);
}

#[tokio::test]
async fn a_body_that_fails_is_an_error() {
    for (rule, expected) in [
        (each(5).count_if(|response| response.is_error()), 4),
        (unauthenticated(5), 5),
        (unauthenticated(5).keep_on_error(), 4),
        // It has answered before.
        (each(5).cost_by_response(|_| None), 4),
    ] {
        // The other one waits for the status too.
        let limits = layer([rule, per_minute("plain", 5).by(header("x-client"))]);
        let answer = call(&limits, &[GRPC], || vec![data(), Err("cut off")]).await;
        assert!(answer.into_body().collect().await.is_err());
        assert_eq!(left(&limits), expected);
        assert_eq!(app::left(&limits, "plain", asking(200)), 4);
    }
}

#[tokio::test]
async fn a_grpc_client_that_goes_away_before_the_status_is_counted() {
    let limits = layer([unauthenticated(5)]);
    let mut answer = call(&limits, &[GRPC], || vec![data(), trailers("0")]).await;
    assert!(answer.frame().await.unwrap().unwrap().is_data());
    drop(answer);
    assert_eq!(left(&limits), 4);
    // Not even the first message was read.
    drop(call(&limits, &[GRPC], || vec![data(), trailers("0")]).await);
    assert_eq!(left(&limits), 3);
}

#[tokio::test]
async fn a_grpc_web_call_whose_status_is_in_the_body_counts() {
    let limits = layer([unauthenticated(5)]);
    let web = &[("content-type", "application/grpc-web+proto")];
    let answer = call(&limits, web, || vec![data()]).await;
    answer.into_body().collect().await.expect("a body");
    assert_eq!(left(&limits), 4);
    let web = &[
        ("content-type", "application/grpc-web+proto"),
        ("grpc-status", "0"),
    ];
    call(&limits, web, Vec::new).await;
    assert_eq!(left(&limits), 4);
}

#[tokio::test]
async fn the_protocol_of_the_layer_says_where_the_status_is() {
    let success = || each(5).count_if(|response| response.status() != 200);
    let trailing = || vec![data(), trailers("0")];
    let http = layer([success()]).protocol(Protocol::Http);
    drop(call(&http, &[GRPC], trailing).await);
    assert_eq!(left(&http), 5);
    let grpc = layer([success()]).protocol(Protocol::Grpc);
    drop(call(&grpc, &[], trailing).await);
    assert_eq!(left(&grpc), 4);
}
