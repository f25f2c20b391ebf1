//! Requests that are shed by their priority.

use std::{
    convert::Infallible,
    future::Future,
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use axum::{Router, body::Body, routing::get};
use http::{Method, Request, Response};
use tollgate::{
    Head, SECOND,
    clock::{Clock, ManualClock},
    key::{PeerAddr, header},
    shed::{Capacity, Priority, ShedLayer},
};
use tollgate_tests::{
    app::{field, get as request_for, layer, per_minute, send, status, text},
    counted::Metrics,
};
use tower::{Layer as _, Service as _, service_fn};

/// A service with room for this many requests in flight, whose class is their path.
fn shed(requests: usize) -> ShedLayer {
    let class = |head: &Head<'_>| match head.uri.path() {
        "/p0" => Priority::P0,
        "/p1" => Priority::P1,
        "/p2" => Priority::P2,
        _ => Priority::P3,
    };
    let capacity = Capacity::in_flight(requests).expect("a capacity");
    ShedLayer::new(capacity)
        .priority(class)
        .clock(ManualClock::default())
}

fn behind(layer: ShedLayer) -> Router {
    Router::new().fallback(|| async { "served" }).layer(layer)
}

/// Responses whose bodies are not read: they stay in flight.
async fn busy(app: &Router, requests: usize) -> Vec<Response<Body>> {
    let mut responses = Vec::new();
    for _ in 0..requests {
        responses.push(send(app, request_for("/p0")).await);
    }
    responses
}

#[test]
fn its_future_is_debug_whatever_the_service_returns() {
    async fn service(_: Request<()>) -> Result<Response<()>, Infallible> {
        unreachable!()
    }
    let future = shed(1).layer(service_fn(service)).call(Request::new(()));
    assert_eq!(format!("{future:?}"), "ShedFuture { .. }");
}

#[tokio::test]
async fn classes_are_shed_in_their_order_and_critical_requests_never() {
    // Which classes get through is certain below their threshold and when nothing is left.
    for (in_flight, served) in [(69, "0123"), (100, "0"), (150, "0")] {
        let app = behind(shed(100));
        let _busy = busy(&app, in_flight).await;
        let mut through = String::new();
        for class in ["0", "1", "2", "3"] {
            if status(&app, request_for(&format!("/p{class}"))).await == 200 {
                through.push_str(class);
            }
        }
        assert_eq!(through, served, "{in_flight} in flight");
    }
}

#[tokio::test]
async fn from_its_threshold_on_a_growing_share_of_a_class_is_shed() {
    let mut shares = Vec::new();
    let mut waits = std::collections::BTreeSet::new();
    for in_flight in [70, 80, 90] {
        let app = behind(shed(100));
        let _busy = busy(&app, in_flight).await;
        let mut served = 0;
        for _ in 0..600 {
            let answer = send(&app, request_for("/p3")).await;
            served += u32::from(answer.status() == 200);
            waits.extend(
                answer
                    .headers()
                    .get("retry-after")
                    .cloned()
                    .map(|it| format!("{it:?}")),
            );
        }
        shares.push(served / 6);
    }
    // Those that are shed do not come back together.
    assert_eq!(waits.len(), 2, "{waits:?}");
    let [at_threshold, third, two_thirds] = shares[..] else {
        unreachable!()
    };
    assert!(
        at_threshold == 100 && (55..=78).contains(&third) && (22..=45).contains(&two_thirds),
        "{shares:?}"
    );
}

#[tokio::test]
async fn the_share_falls_slowly_after_a_peak_and_nothing_is_shed_below_the_threshold() {
    let clock = ManualClock::default();
    let app = behind(shed(10).clock(&clock));
    let peak = busy(&app, 10).await;
    assert_eq!(status(&app, request_for("/p3")).await, 503);
    drop(peak);
    let still_busy = busy(&app, 8).await;
    // By the peak, all of P3 is shed; by the load alone, a third.
    for _ in 0..20 {
        assert_eq!(status(&app, request_for("/p3")).await, 503);
    }
    assert_eq!(status(&app, request_for("/p2")).await, 503);
    clock.advance(2 * SECOND);
    let mut served = 0;
    for _ in 0..60 {
        served += u32::from(status(&app, request_for("/p3")).await == 200);
    }
    assert!((25..=55).contains(&served), "{served}");
    drop(still_busy);
    assert_eq!(status(&app, request_for("/p3")).await, 200);
}

#[tokio::test]
async fn a_request_that_is_shed_takes_the_place_of_no_other() {
    let (meanwhile, seen) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None)));
    let (next, answer) = (Arc::clone(&meanwhile), Arc::clone(&seen));
    // A request that may be shed reads the clock. Then another one comes, before it is decided.
    let app = behind(shed(10).clock(Clock::custom(move || {
        let app: Option<Router> = next.lock().unwrap().take();
        if let Some(app) = app {
            let request = pin!(status(&app, request_for("/p1")));
            let polled = request.poll(&mut Context::from_waker(Waker::noop()));
            *answer.lock().unwrap() = Some(polled);
        }
        0
    })));
    let mut busy = busy(&app, 10).await;
    assert_eq!(status(&app, request_for("/p3")).await, 503);
    busy.truncate(8);
    *meanwhile.lock().unwrap() = Some(app.clone());
    assert_eq!(status(&app, request_for("/p3")).await, 503);
    // Eight of ten are in flight, and P1 is shed from nine on.
    assert_eq!(seen.lock().unwrap().take(), Some(Poll::Ready(200)));
}

#[tokio::test]
async fn a_request_is_in_flight_until_its_body_has_ended_or_is_dropped() {
    let layer = shed(1);
    let app = behind(layer.clone());
    let response = send(&app, request_for("/p3")).await;
    assert_eq!(layer.requests_in_flight(), 1);
    assert_eq!(status(&app, request_for("/p3")).await, 503);
    assert_eq!(text(response).await, "served");
    assert_eq!(layer.requests_in_flight(), 0);
    drop(send(&app, request_for("/p3")).await);
    assert_eq!(layer.requests_in_flight(), 0);
}

#[tokio::test]
async fn the_answer_is_a_503_with_a_time_or_unavailable_with_a_pushback() {
    let app = behind(shed(1));
    let _busy = busy(&app, 1).await;
    let answer = send(&app, request_for("/p2")).await;
    assert_eq!(answer.status(), 503);
    assert_eq!(field(&answer, "content-type"), "application/problem+json");
    let seconds: u64 = field(&answer, "retry-after").parse().expect("seconds");
    assert!((2..=4).contains(&seconds), "{seconds}");
    let body: serde_json::Value = serde_json::from_str(&text(answer).await).expect("JSON");
    assert_eq!(body["status"], 503);
    assert_eq!(
        body["type"],
        "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
    );

    let head = Request::builder()
        .method(Method::HEAD)
        .uri("/p2")
        .body(Body::empty())
        .expect("a request");
    let answer = send(&app, head).await;
    assert!(answer.headers()["content-length"] != "0");
    assert_eq!(text(answer).await, "");

    let call = Request::post("/p2")
        .header("content-type", "application/grpc")
        .body(Body::empty());
    let answer = send(&app, call.expect("a request")).await;
    assert_eq!(
        (answer.status().as_u16(), field(&answer, "grpc-status")),
        (200, "14")
    );
    let pushback: u64 = field(&answer, "grpc-retry-pushback-ms")
        .parse()
        .expect("milliseconds");
    assert!((2_000..=4_000).contains(&pushback), "{pushback}");
}

#[tokio::test]
async fn limits_outside_of_the_layer_give_the_units_of_a_shed_request_back() {
    let limits = layer([per_minute("each", 2).by(header("x-client"))]);
    let app = behind(shed(1)).layer(limits);
    let from_ann = || request_for("/p3").header("x-client", "ann");
    let busy = send(&app, from_ann()).await;
    for _ in 0..5 {
        assert_eq!(status(&app, from_ann()).await, 503);
    }
    drop(busy);
    assert_eq!(status(&app, from_ann()).await, 200);
    assert_eq!(status(&app, from_ann()).await, 429);
}

#[tokio::test]
async fn a_class_in_a_header_is_read_from_trusted_peers_only() {
    let layer = shed(1).priority_header("x-priority", ["10.0.0.0/8"]);
    let app = behind(layer.expect("settings"));
    let _busy = busy(&app, 1).await;
    let from = |peer: &str, priority: &str| {
        let peer = PeerAddr(peer.parse().expect("an address"));
        request_for("/p3")
            .extension(peer)
            .header("x-priority", priority.to_owned())
    };
    assert_eq!(status(&app, from("10.1.2.3:1000", "0")).await, 200);
    assert_eq!(status(&app, from("192.0.2.1:1000", "0")).await, 503);
    // An unknown value is the lowest class, and so are two values.
    assert_eq!(status(&app, from("10.1.2.3:1000", "urgent")).await, 503);
    assert_eq!(
        status(&app, from("10.1.2.3:1000", "0").header("x-priority", "0")).await,
        503
    );
}

#[tokio::test]
async fn a_retry_gets_the_answer_of_the_first_attempt() {
    let layer = shed(100).request_id_header("x-request-id", ["10.0.0.1"]);
    let app = behind(layer.expect("settings"));
    let _busy = busy(&app, 85).await;
    let attempt = async |id: u32| {
        let peer = PeerAddr("10.0.0.1:1000".parse().expect("an address"));
        let request = request_for("/p3")
            .extension(peer)
            .header("x-request-id", id);
        status(&app, request).await
    };
    let mut answers = [0, 0];
    for id in 0..60 {
        let first = attempt(id).await;
        answers[usize::from(first == 200)] += 1;
        for _ in 0..3 {
            assert_eq!(attempt(id).await, first);
        }
    }
    assert!(answers[0] > 10 && answers[1] > 10, "{answers:?}");
}

#[tokio::test]
async fn a_route_has_a_class_of_its_own_and_new_settings_are_for_all() {
    let layer = ShedLayer::new(Capacity::in_flight(1).expect("a capacity"));
    let app = Router::new()
        .route(
            "/health",
            get(|| async { "ok" }).layer(layer.at(Priority::P0)),
        )
        .route("/", get(|| async { "served" }).layer(layer.clone()));
    let _busy = send(&app, request_for("/")).await;
    assert_eq!(status(&app, request_for("/")).await, 503);
    assert_eq!(status(&app, request_for("/health")).await, 200);
    layer.replace(&ShedLayer::new(Capacity::in_flight(2).expect("a capacity")));
    assert_eq!(status(&app, request_for("/")).await, 200);
    assert_eq!(layer.requests_in_flight(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_share_of_your_own_and_slots_are_capacities() {
    let app = behind(ShedLayer::new(Capacity::measured(|| 1.5)).priority(|_| Priority::P1));
    assert_eq!(status(&app, request_for("/")).await, 503);
    let app = behind(ShedLayer::new(Capacity::measured(|| f64::NAN)).priority(|_| Priority::P3));
    assert_eq!(status(&app, request_for("/")).await, 200);

    let app =
        behind(ShedLayer::new(Capacity::measured(|| f64::INFINITY)).priority(|_| Priority::P0));
    assert_eq!(status(&app, request_for("/")).await, 200);

    let rule = tollgate::Rule::new("exports", tollgate::Quota::concurrent(2));
    let limiter =
        tollgate::Limiter::new(tollgate::MemoryStore::new(), [rule]).expect("a valid rule");
    let key = tollgate::Key::of("all");
    let capacity = Capacity::slots(limiter.clone(), "exports", &key).expect("it has the rule");
    let app = behind(ShedLayer::new(capacity).priority(|_| Priority::P1));
    assert_eq!(status(&app, request_for("/")).await, 200);
    let taken = [
        limiter.try_acquire("exports", &key),
        limiter.try_acquire("exports", &key),
    ];
    assert_eq!(status(&app, request_for("/")).await, 200);
    tokio::time::advance(SECOND).await;
    assert_eq!(status(&app, request_for("/")).await, 503);
    drop(taken);
    assert!(Capacity::slots(limiter, "imports", &key).is_err());
    let rate = tollgate::Rule::new("rate", tollgate::Quota::per_second(9));
    let limiter =
        tollgate::Limiter::new(tollgate::MemoryStore::new(), [rate]).expect("a valid rule");
    let error = Capacity::slots(limiter, "rate", &key).expect_err("no slots");
    assert!(error.to_string().contains("Quota::concurrent"), "{error}");
}

#[test]
fn settings_that_cannot_work_say_what_would() {
    let error = |result: Result<ShedLayer, tollgate::RuleError>| {
        result.expect_err("it is wrong").to_string()
    };
    assert!(
        Capacity::in_flight(0)
            .expect_err("it is wrong")
            .to_string()
            .contains("take at least 1")
    );
    assert!(Capacity::adaptive_within(5, 4).is_err() && Capacity::adaptive_within(0, 4).is_err());
    for [p1, p2, p3] in [
        [1.1, 0.8, 0.7],
        [0.7, 0.8, 0.9],
        [f64::NAN, 0.8, 0.7],
        [0.9, 0.8, -0.1],
    ] {
        assert!(error(shed(1).thresholds(p1, p2, p3)).contains("(0.9, 0.8, 0.7)"));
    }
    for wrong in [&[][..], &["::/0"], &["10.0.0.5/8"]] {
        assert!(shed(1).priority_header("x-priority", wrong).is_err());
    }
    assert!(
        shed(1)
            .priority_header("x priority", ["10.0.0.0/8"])
            .is_err()
    );
}

#[test]
fn metrics_say_what_was_shed_and_how_full_the_service_is() {
    let metrics = Metrics::record();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let app = behind(shed(1).name("api"));
        let _busy = busy(&app, 1).await;
        let _ = status(&app, request_for("/p1")).await;
    });
    let counted = metrics.counted();
    let labels = [("layer", "api"), ("priority", "p1")];
    assert_eq!(counted.sum("tollgate_shed_requests_total", &labels), 1);
    assert_eq!(counted.gauge("tollgate_shed_load{layer=api}"), 1.0);
    assert_eq!(counted.gauge("tollgate_shed_limit{layer=api}"), 1.0);
}
