//! Slots in the layer: each path of a request returns them, once, and not before its response has ended.

use std::{
    convert::Infallible,
    future::{Future, pending, ready},
    panic::resume_unwind,
    task::{Context, Waker},
};

use axum::{Extension, Router, body::Body, routing};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::oneshot;
use tollgate::{
    Admission, Denied, Key, Quota, RateLimitLayer, RequestRule, Rule,
    header::HeaderStyle,
    key::header,
    service::{Refund, ResponseBody},
};
use tollgate_tests::{
    app::{field, from, layer, left, per_minute, send, still, text},
    frames::{FrameResult, Frames, data},
};
use tower::{Layer, ServiceExt, service_fn};

fn at_once(limit: u64) -> RequestRule {
    Rule::new("at-once", Quota::concurrent(limit)).by(header("x-client"))
}

/// The free slots of `ann`.
fn free(limits: &RateLimitLayer) -> u64 {
    left(limits, "at-once", from("ann"))
}

/// A response with this body, of `ann`.
async fn response(
    limits: &RateLimitLayer,
    knows_end: bool,
    frames: fn() -> Vec<FrameResult>,
) -> Response<ResponseBody<Frames>> {
    let service = service_fn(move |_: Request<Body>| {
        let frames = frames();
        ready(Ok::<_, Infallible>(Response::new(Frames {
            frames,
            knows_end,
        })))
    });
    limits.layer(service).oneshot(from("ann")).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_held_until_the_body_ends() {
    for attach in [false, true] {
        let mut limits = layer([at_once(2), per_minute("each", 9).by(header("x-client"))]);
        if attach {
            limits = limits.attach_decision();
        }
        let first = response(&limits, false, || vec![data()]).await;
        let mut second = response(&limits, false, || vec![data(), data()]).await;
        assert_eq!(free(&limits), 0);
        let denied = response(&limits, false, Vec::new).await;
        assert_eq!(denied.status(), 429);
        // A denial takes nothing from the rate either.
        assert_eq!(left(&limits, "each", from("ann")), 7);
        assert_eq!(left(&limits, "at-once", from("bob")), 2);
        for _ in 0..2 {
            assert!(second.frame().await.unwrap().is_ok());
            assert_eq!(free(&limits), 0);
        }
        // At the end, and not only when the body is dropped.
        assert!(second.frame().await.is_none());
        assert_eq!(free(&limits), 1);
        drop(second);
        assert_eq!(free(&limits), 1);
        drop(first);
        assert_eq!(free(&limits), 2);
    }
}

#[tokio::test]
async fn the_last_byte_of_a_body_that_knows_its_end_returns_the_slot() {
    let limits = layer([at_once(1)]);
    let mut answer = response(&limits, true, || vec![data(), data()]).await;
    answer.frame().await.unwrap().unwrap();
    assert_eq!(free(&limits), 0);
    answer.frame().await.unwrap().unwrap();
    // A server does not poll it again.
    assert_eq!(free(&limits), 1);
}

#[tokio::test]
async fn a_request_that_is_dropped_before_its_head_returns_its_slot() {
    for attach in [false, true] {
        let mut limits = layer([at_once(1)]);
        if attach {
            limits = limits.attach_decision();
        }
        let (kept, mut keeps) = tokio::sync::mpsc::unbounded_channel();
        let service = limits.layer(service_fn(move |request: Request<Body>| {
            // What a handler keeps of the request does not keep the slot.
            let _ = kept.send(request.into_parts().0);
            pending::<Result<Response<Body>, Infallible>>()
        }));
        let mut future = Box::pin(service.oneshot(from("ann")));
        let polled = future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        assert_eq!(free(&limits), 0);
        drop(future);
        assert_eq!(free(&limits), 1);
        let head = keeps.recv().await.expect("a head");
        if let Some(admission) = head.extensions.get::<Admission>() {
            // Too late to hold it.
            let late = admission.ticket();
            assert_eq!((late.slot_number("at-once"), free(&limits)), (None, 1));
        }
    }
}

#[tokio::test]
async fn a_panic_before_there_is_a_future_returns_the_slots() {
    let limits = layer([at_once(1), at_once_too(1)]);
    let service = limits.layer(service_fn(|_: Request<Body>| {
        resume_unwind(Box::new("a service's mistake"));
        #[expect(unreachable_code, reason = "it has a type")]
        ready(Ok::<_, Infallible>(Response::new(Body::empty())))
    }));
    let call = tokio::spawn(async { service.oneshot(from("ann")).await });
    assert!(call.await.unwrap_err().is_panic());
    assert_eq!(free(&limits), 1);
    assert_eq!(left(&limits, "at-once-too", from("ann")), 1);
}

/// A second rule, that keeps units on errors: slots are none of these.
fn at_once_too(limit: u64) -> RequestRule {
    let rule = Rule::new("at-once-too", Quota::concurrent(limit));
    rule.by(header("x-client")).keep_on_error()
}

#[tokio::test]
async fn a_refund_or_a_settlement_leaves_the_slot_to_the_body() {
    let settled = per_minute("each", 9)
        .by(header("x-client"))
        .count_if(|response| response.is_failure());
    let limits = layer([at_once(1), settled]);
    for refunds in [false, true] {
        let service = limits.layer(service_fn(move |_: Request<Body>| {
            let mut response = Response::new(Body::from("lines"));
            if refunds {
                response.extensions_mut().insert(Refund);
            }
            ready(Ok::<_, Infallible>(response))
        }));
        let answer = service.oneshot(from("ann")).await.unwrap();
        assert_eq!(left(&limits, "each", from("ann")), 9);
        assert_eq!(free(&limits), 0);
        drop(answer);
        assert_eq!(free(&limits), 1);
    }
}

#[tokio::test]
async fn a_ticket_holds_the_slot_beyond_the_response() {
    let limits = layer([at_once(1)]).attach_decision();
    let (ended, end) = oneshot::channel::<()>();
    let (done, is_done) = oneshot::channel::<()>();
    let once = std::sync::Arc::new(std::sync::Mutex::new(Some((end, done))));
    let handler = move |admission: Admission| async move {
        let ticket = admission.ticket();
        let (end, done) = once.lock().unwrap().take().expect("called once");
        tokio::spawn(async move {
            let _ = end.await;
            drop(ticket);
            let _ = done.send(());
        });
        StatusCode::ACCEPTED
    };
    let app = Router::new()
        .route("/", routing::get(handler))
        .layer(limits.clone());
    let answer = send(&app, from("ann")).await;
    assert_eq!(answer.status(), 202);
    drop(answer);
    // The job goes on.
    assert_eq!(free(&limits), 0);
    drop(ended);
    is_done.await.expect("the job ends");
    assert_eq!(free(&limits), 1);
}

#[tokio::test]
async fn a_rule_for_handlers_holds_its_slot_with_the_decision() {
    async fn handler(
        admission: Admission,
        Extension(limits): Extension<RateLimitLayer>,
    ) -> Result<String, Denied> {
        let key = Key::of("account-7");
        let free = || {
            let limiter = limits.limiter();
            let check = limiter
                .check("account", &key)
                .expect("it is there")
                .with_cost(0);
            limiter.peek(&[check]).ready().expect("at once").verdicts()[0].remaining()
        };
        let held = admission.acquire("account", &key).await?;
        let denied = admission.acquire("account", &key).await.is_err();
        let while_held = free();
        drop(held);
        // What the layer keeps for the header fields does not hold it.
        let ticket = admission.acquire_ticket("account", &key).await?;
        let with_ticket = free();
        drop(ticket);
        Ok(format!("{while_held} {denied} {with_ticket} {}", free()))
    }
    let limits = layer([Rule::new("account", Quota::concurrent(1)).by_handler()]);
    let app = Router::new()
        .route("/", routing::get(handler))
        .layer(limits.clone())
        .layer(Extension(limits));
    assert_eq!(text(send(&app, from("ann")).await).await, "0 true 0 1");
}

#[tokio::test]
async fn fields_have_the_free_slots_and_no_window() {
    let app = |limits: RateLimitLayer| {
        let held = routing::get(|| async { "a body" });
        Router::new().route("/", held).layer(limits)
    };
    let rules = || [at_once(2), per_minute("each", 9).by(header("x-client"))];
    let limits = layer(rules());
    let both = app(limits.clone());
    let first = send(&both, from("ann")).await;
    assert_eq!(
        field(&first, "ratelimit"),
        r#""at-once";r=1, "each";r=8;t=60"#
    );
    assert_eq!(
        field(&first, "ratelimit-policy"),
        r#""at-once";q=2;qu="concurrent-requests", "each";q=9;w=60"#
    );
    let second = send(&both, from("ann")).await;
    let denied = send(&both, from("ann")).await;
    assert_eq!(denied.status(), 429);
    assert_eq!(
        field(&denied, "ratelimit"),
        r#""at-once";r=0, "each";r=7;t=60"#
    );
    // When a slot will be free is not known.
    assert_eq!(field(&denied, "retry-after"), "");
    let body: serde_json::Value = serde_json::from_str(&text(denied).await).expect("JSON");
    assert_eq!(body["reason"], "slots");
    assert_eq!(
        body["detail"],
        "Policy \"at-once\" allows 2 requests at once."
    );
    assert_eq!(body["violated-policies"][0], "at-once");
    drop((first, second));

    // The other styles have no place for it.
    for (style, name) in [
        (HeaderStyle::DRAFT_7, "ratelimit"),
        (HeaderStyle::DRAFT_6, "ratelimit-remaining"),
        (HeaderStyle::X_RATELIMIT_DELTA, "x-ratelimit-remaining"),
    ] {
        let limits = layer(rules()).headers(style).expect("a style");
        let answer = send(&app(limits), from("ann")).await;
        assert!(field(&answer, name).contains('8'), "{name}");
        let limits = layer([at_once(2)]).headers(style).expect("a style");
        let answer = send(&app(limits), from("ann")).await;
        assert_eq!(field(&answer, name), "");
        assert_eq!(field(&answer, "ratelimit-policy"), "");
    }
}

#[test]
fn a_slot_that_depends_on_the_response_is_refused() {
    let counts = at_once(1).count_if(|response| response.is_failure());
    let costs = at_once(1).cost_by_response(|_| Some(2));
    for (rule, call) in [(counts, "count_if"), (costs, "cost_by_response")] {
        let error = RateLimitLayer::new(still().0, [rule]).expect_err("it is refused");
        let remedy = format!("remove {call}, or limit a rate in a rule of its own");
        assert!(error.to_string().contains(&remedy), "{error}");
    }
}
