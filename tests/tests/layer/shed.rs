//! Load that is shed below the layer: what a denial waits for, and what is given back.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use axum::{
    BoxError, Extension, Router, body::Body, error_handling::HandleErrorLayer,
    response::IntoResponse, routing,
};
use http::{Request, Response, StatusCode};
use tokio::{task::JoinHandle, time::Instant};
use tollgate::{RateLimitLayer, RequestRule, key::header, service::Refund};
use tollgate_conformance::SwitchedStore;
use tollgate_tests::{
    app::{self, from, per_minute, send, still},
    counted::Metrics,
};
use tower::{Layer, ServiceBuilder, ServiceExt, limit::GlobalConcurrencyLimitLayer, service_fn};

const WORK: Duration = Duration::from_secs(5);

/// So many requests for each client.
fn each(limit: u64) -> RequestRule {
    per_minute("each", limit).by(header("x-client"))
}

fn limits(store: SwitchedStore, rule: RequestRule) -> RateLimitLayer {
    RateLimitLayer::new(store, [rule]).expect("a valid rule")
}

async fn shed(_: BoxError) -> impl IntoResponse {
    (StatusCode::SERVICE_UNAVAILABLE, Extension(Refund))
}

/// The stack of the guide: a place for one request at a time, which takes five seconds.
fn recommended(limits: RateLimitLayer) -> Router {
    let work = || tokio::time::sleep(WORK);
    Router::new().route("/", routing::get(work)).layer(
        ServiceBuilder::new()
            .layer(limits)
            .layer(HandleErrorLayer::new(shed))
            .load_shed()
            .layer(GlobalConcurrencyLimitLayer::new(1)),
    )
}

async fn send_from(app: &Router, client: &str) -> Response<Body> {
    send(app, from(client)).await
}

async fn status(app: &Router, client: &str) -> u16 {
    send_from(app, client).await.status().as_u16()
}

/// A request that takes the only place, and holds it.
async fn busy(app: &Router, client: &'static str) -> JoinHandle<u16> {
    let app = app.clone();
    let working = tokio::spawn(async move { status(&app, client).await });
    // Long enough for any store, and not for the work.
    tokio::time::sleep(WORK / 2).await;
    working
}

fn left(limits: &RateLimitLayer, client: &str) -> u64 {
    app::left(limits, "each", from(client))
}

#[tokio::test(start_paused = true)]
async fn behind_load_shedding_a_denial_waits_for_nothing() {
    let app = recommended(limits(SwitchedStore::at_once(still().0), each(1)));
    let working = busy(&app, "ann").await;
    let before = Instant::now();
    assert_eq!(status(&app, "ann").await, 429);
    assert_eq!(before.elapsed(), Duration::ZERO);
    // Not even for another task.
    let denial = pin!(app.clone().oneshot(from("ann")));
    let Poll::Ready(Ok(denied)) = denial.poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("the answer is not there")
    };
    assert_eq!(denied.status(), 429);
    assert_eq!(working.await.unwrap(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_shed_request_is_refunded() {
    for store in app::stores() {
        let limits = limits(store, each(2));
        let app = recommended(limits.clone());
        let working = busy(&app, "ann").await;
        for _ in 0..3 {
            let shed = send_from(&app, "bob").await;
            assert_eq!(shed.status(), 503);
            // What it would say is not true any more.
            assert!(!shed.headers().contains_key("ratelimit"));
            assert_eq!(left(&limits, "bob"), 2);
        }
        assert_eq!((working.await.unwrap(), left(&limits, "ann")), (200, 1));
        assert_eq!(status(&app, "bob").await, 200);
        assert_eq!(left(&limits, "bob"), 1);
    }
}

/// Fails, or answers with the mark.
fn failing(marked: bool) -> impl Fn(Request<Body>) -> Outcome + Clone {
    move |_| {
        std::future::ready(if marked {
            let mut response = Response::new(Body::empty());
            response.extensions_mut().insert(Refund);
            Ok(response)
        } else {
            Err("no such luck")
        })
    }
}

type Outcome = std::future::Ready<Result<Response<Body>, &'static str>>;

#[tokio::test(start_paused = true)]
async fn keep_on_error_keeps_the_units() {
    for marked in [false, true] {
        for store in app::stores() {
            let keeps = per_minute("keeps", 2)
                .by(header("x-client"))
                .keep_on_error();
            let limits = RateLimitLayer::new(store, [each(2), keeps]).expect("valid rules");
            let service = limits.layer(service_fn(failing(marked)));
            let _ = service.oneshot(from("ann")).await;
            assert_eq!(left(&limits, "ann"), 2);
            assert_eq!(app::left(&limits, "keeps", from("ann")), 1, "{marked}");
        }
    }
}

#[tokio::test]
async fn every_outer_layer_refunds() {
    let outer = limits(SwitchedStore::at_once(still().0), each(2));
    let inner = limits(SwitchedStore::at_once(still().0), each(3));
    for marked in [false, true] {
        let service = outer.layer(inner.layer(service_fn(failing(marked))));
        let _ = service.oneshot(from("ann")).await;
        assert_eq!((left(&outer, "ann"), left(&inner, "ann")), (2, 3));
    }
}

#[tokio::test]
async fn a_shadow_gets_its_units_back_too() {
    let trial = per_minute("trial", 1).shadow().by(header("x-client"));
    for marked in [false, true] {
        let store = SwitchedStore::at_once(still().0);
        let limits = RateLimitLayer::new(store, [each(9), trial.clone()]).expect("valid rules");
        let service = limits.layer(service_fn(failing(marked)));
        let _ = service.oneshot(from("ann")).await;
        assert_eq!(app::left(&limits, "trial", from("ann")), 1);
    }
}

#[tokio::test]
async fn refunds_are_counted() {
    let metrics = Metrics::record();
    let kept = per_minute("kept", 9).by(header("x-client")).keep_on_error();
    let limits = RateLimitLayer::new(still().0, [each(9), kept]).expect("valid rules");
    for marked in [false, true] {
        let service = limits.layer(service_fn(failing(marked)));
        let _ = service.oneshot(from("ann")).await;
    }
    let counted = metrics.counted();
    let refunded =
        |rule| counted.count(&format!("tollgate_refunded_requests_total{{rule={rule}}}"));
    assert_eq!((refunded("each"), refunded("kept")), (2, 0));
}
