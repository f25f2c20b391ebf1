//! Waiting in the layer: when a request starts, what it holds meanwhile, and how many may wait.

use std::{convert::Infallible, time::Duration};

use axum::{Router, body::Body, routing};
use http::{Request, Response};
use http_body_util::BodyExt;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tollgate::{
    Admission, Denied, Head, Key, Limiter, MINUTE, MemoryStore, Quota, RateLimitLayer, RequestRule,
    Rule, SECOND, clock::Clock, key::header, message::MessageLimitLayer,
};
use tollgate_conformance::RemoteStore;
use tollgate_tests::{
    app::{from, get, left, send, still, text},
    counted::{Counted, Metrics},
    probe::Probe,
};
use tower::{
    Layer, Service, ServiceBuilder, ServiceExt, limit::GlobalConcurrencyLimitLayer, service_fn,
};

const TENTH: Duration = Duration::from_millis(100);

fn store() -> MemoryStore {
    MemoryStore::builder().clock(Clock::tokio()).build()
}

fn limits(rules: impl IntoIterator<Item = RequestRule>) -> RateLimitLayer {
    RateLimitLayer::new(store(), rules).expect("valid rules")
}

/// Ten a second, one at a time, for each client.
fn paced(at_most: Duration) -> RequestRule {
    let quota = Quota::gcra(10, SECOND).burst(1);
    Rule::new("paced", quota)
        .wait(at_most)
        .by(header("x-client"))
}

fn at_once(limit: u64, at_most: Duration) -> RequestRule {
    let rule = Rule::new("at-once", Quota::concurrent(limit)).wait(at_most);
    rule.by(header("x-client"))
}

fn app(limits: &RateLimitLayer) -> Router {
    let body = routing::get(|| async { "a body" });
    Router::new().route("/", body).layer(limits.clone())
}

/// A request in a task, which has got as far as it does without time.
async fn spawn(app: &Router, client: &'static str) -> JoinHandle<(Response<Body>, Duration)> {
    let (app, start) = (app.clone(), Instant::now());
    let task = tokio::spawn(async move {
        let response = send(&app, from(client)).await;
        (response, start.elapsed())
    });
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    task
}

/// The reason in the body of a denial.
async fn reason_of(denied: Response<Body>) -> String {
    assert_eq!(denied.status(), 429);
    let body: serde_json::Value = serde_json::from_str(&text(denied).await).expect("JSON");
    body["reason"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn requests_start_one_after_the_other_in_their_order() {
    let app = app(&limits([paced(2 * TENTH)]));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        tasks.push(spawn(&app, "ann").await);
    }
    for (number, task) in tasks.into_iter().enumerate() {
        let (response, after) = task.await.unwrap();
        let status = response.status().as_u16();
        match number {
            0..3 => assert_eq!((status, after), (200, number as u32 * TENTH)),
            // It would have to wait for longer.
            _ => assert_eq!((status, after), (429, Duration::ZERO)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_request_holds_no_readiness_of_the_inner_service() {
    for look_up in [false, true] {
        let rule = if look_up {
            let client = |head: &Head<'_>| {
                let client = head.headers["x-client"].to_str().expect("text").to_owned();
                async move { Some(client) }
            };
            let quota = Quota::gcra(10, SECOND).burst(1);
            Rule::new("paced", quota)
                .wait(SECOND)
                .by(tollgate::key::look_up(client))
        } else {
            paced(SECOND)
        };
        // One place for all.
        let inner = ServiceBuilder::new()
            .layer(GlobalConcurrencyLimitLayer::new(1))
            .layer_fn(Probe::new)
            .service_fn(|_: Request<Body>| async {
                Ok::<_, Infallible>(Response::new(Body::empty()))
            });
        let service = limits([rule]).layer(Probe::new(inner));
        let start = Instant::now();
        service.clone().oneshot(from("ann")).await.unwrap();
        let waiting = tokio::spawn(service.clone().oneshot(from("ann")));
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        // The place is free for others while it waits.
        service.clone().oneshot(from("bob")).await.unwrap();
        assert_eq!(start.elapsed(), Duration::ZERO);
        waiting.await.unwrap().unwrap();
        assert_eq!(start.elapsed(), TENTH);
    }
}

#[tokio::test(start_paused = true)]
async fn as_many_wait_as_have_a_place() {
    for (at_most, reason, counted) in [(SECOND, "queue_full", 2), (2 * TENTH, "", 0)] {
        let metrics = Metrics::record();
        let app = app(&limits([paced(at_most)]).max_waiting(2, 1 << 20));
        let mut tasks = Vec::new();
        for _ in 0..5 {
            tasks.push(spawn(&app, "ann").await);
        }
        let mut answers = Vec::new();
        for task in tasks {
            let (response, after) = task.await.unwrap();
            if response.status() == 429 {
                assert_eq!(reason_of(response).await, reason);
                answers.push((429, after));
            } else {
                answers.push((200, after));
            }
        }
        let (full, tenths) = ((429, Duration::ZERO), |n: u32| (200, n * TENTH));
        assert_eq!(answers, [tenths(0), tenths(1), tenths(2), full, full]);
        assert_eq!(waits(&metrics.counted(), "paced", "queue_full"), counted);
        // Nothing was taken for those that were denied, and the places are free again.
        sleep(TENTH).await;
        assert_eq!(spawn(&app, "ann").await.await.unwrap().1, Duration::ZERO);
        assert_eq!(spawn(&app, "ann").await.await.unwrap().1, TENTH);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_future_is_never_polled_gives_its_place_back() {
    let answer = |_| async { Ok::<_, Infallible>(Response::new(Body::empty())) };
    let mut service = limits([paced(SECOND)]).layer(service_fn(answer));
    let _ = service.call(from("ann")).await;
    drop(service.call(from("ann")));
    let start = Instant::now();
    let _ = service.call(from("ann")).await;
    assert_eq!(start.elapsed(), TENTH);
}

#[tokio::test(start_paused = true)]
async fn the_heads_of_waiting_requests_are_bounded_in_bytes() {
    let layer = limits([paced(SECOND)]).max_waiting(9, 500);
    let app = app(&layer);
    let with = |padding: usize| {
        get("/")
            .header("x-client", "ann")
            .header("x-padding", "x".repeat(padding))
    };
    let request = |padding| with(padding).body(Body::empty()).expect("a request");
    assert_eq!(send(&app, request(0)).await.status(), 200);
    let full = send(&app, request(500)).await;
    assert_eq!(reason_of(full).await, "queue_full");
    let start = Instant::now();
    assert_eq!(send(&app, request(100)).await.status(), 200);
    // The denied one has given its place in the queue back.
    assert_eq!(start.elapsed(), TENTH);
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_a_slot_in_the_queue() {
    let layer = limits([
        at_once(1, SECOND),
        Rule::new("each", Quota::sliding_log(9, MINUTE)).by(header("x-client")),
    ]);
    let app = app(&layer);
    let (first, _) = spawn(&app, "ann").await.await.unwrap();
    let second = spawn(&app, "ann").await;
    sleep(TENTH).await;
    let third = spawn(&app, "ann").await;
    assert_eq!(left(&layer, "each", from("ann")), 8);
    sleep(TENTH).await;
    drop(first);
    let (second, after) = second.await.unwrap();
    assert_eq!((second.status().as_u16(), after), (200, 2 * TENTH));
    // The body of the second holds the slot now.
    let (third, after) = third.await.unwrap();
    assert_eq!((third.status().as_u16(), after), (429, SECOND));
    // What waited in vain takes nothing.
    assert_eq!(left(&layer, "each", from("ann")), 7);
    assert_eq!(reason_of(third).await, "wait_expired");
    second.into_body().collect().await.unwrap();
    assert_eq!(left(&layer, "at-once", from("ann")), 1);
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_for_a_slot_start_before_later_ones_when_rules_are_replaced() {
    for (limit, order) in [(1, [1, 2, 3, 4]), (2, [1, 2, 2, 3])] {
        let layer = limits([at_once(1, MINUTE)]);
        let app = app(&layer);
        let (mut running, _) = spawn(&app, "ann").await.await.unwrap();
        let mut tasks = vec![spawn(&app, "ann").await, spawn(&app, "ann").await];
        let replaced = layer.handle().replace([at_once(limit, MINUTE)]);
        replaced.expect("valid rules");
        tasks.extend([spawn(&app, "ann").await, spawn(&app, "ann").await]);
        let mut starts = Vec::new();
        for task in tasks {
            sleep(TENTH).await;
            drop(running);
            let after;
            (running, after) = task.await.unwrap();
            assert_eq!(running.status(), 200);
            starts.push(after);
        }
        // Those that waited start by the limit that they know.
        assert_eq!(starts, order.map(|n| n * TENTH));
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_in_the_queue_for_a_slot_leaves_nothing_behind() {
    let layer = limits([at_once(1, SECOND)]).max_waiting(1, 1 << 20);
    let app = app(&layer);
    let (first, _) = spawn(&app, "ann").await.await.unwrap();
    let gone = spawn(&app, "ann").await;
    // No place for a second one.
    let (full, after) = spawn(&app, "ann").await.await.unwrap();
    assert_eq!((full.status().as_u16(), after), (429, Duration::ZERO));
    assert_eq!(reason_of(full).await, "queue_full");
    gone.abort();
    let _ = gone.await;
    drop(first);
    assert_eq!(left(&layer, "at-once", from("ann")), 1);
    assert_eq!(spawn(&app, "ann").await.await.unwrap().0.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_handler_waits_for_its_own_rule() {
    async fn handler(admission: Admission) -> Result<String, Denied> {
        let (key, start) = (Key::of("account-7"), Instant::now());
        for _ in 0..2 {
            let _ = admission.acquire("account", &key).await?;
        }
        Ok(format!("{:?}", start.elapsed()))
    }
    let quota = Quota::gcra(10, SECOND).burst(1);
    let layer = limits([Rule::new("account", quota).wait(SECOND).by_handler()]);
    let app = Router::new().route("/", routing::get(handler)).layer(layer);
    assert_eq!(text(send(&app, from("ann")).await).await, "100ms");
}

/// What is counted of the waits of a rule.
fn waits(counted: &Counted, rule: &str, outcome: &str) -> u64 {
    counted.count(&format!(
        "tollgate_waits_total{{rule={rule},outcome={outcome}}}"
    ))
}

#[tokio::test(start_paused = true)]
async fn waits_are_counted_by_what_becomes_of_them() {
    let metrics = Metrics::record();
    let layer = limits([paced(SECOND), at_once(1, SECOND)]).max_waiting(2, 1 << 20);
    let app = app(&layer);
    drop(spawn(&app, "ann").await.await.unwrap());
    // Nothing waits, and nothing is said of waits.
    let counted = metrics.counted();
    assert_eq!(waits(&counted, "paced", "admitted"), 0);
    assert!(
        counted
            .recorded("tollgate_wait_seconds{rule=paced}")
            .is_empty()
    );

    let gone = spawn(&app, "ann").await;
    let behind = spawn(&app, "ann").await;
    assert_eq!(spawn(&app, "ann").await.await.unwrap().0.status(), 429);
    let counted = metrics.counted();
    assert_eq!(counted.gauge("tollgate_waiting{rule=paced}"), 2.0);
    assert_eq!(waits(&counted, "paced", "queue_full"), 1);
    gone.abort();
    let _ = gone.await;
    let (held, after) = behind.await.unwrap();
    assert_eq!((held.status().as_u16(), after), (200, 2 * TENTH));
    // The slot is not free in time.
    let (expired, _) = spawn(&app, "ann").await.await.unwrap();
    assert_eq!(expired.status(), 429);
    let counted = metrics.counted();
    // As many fewer than before.
    assert_eq!(counted.gauge("tollgate_waiting{rule=paced}"), -2.0);
    assert_eq!(counted.gauge("tollgate_waiting{rule=at-once}"), -2.0);
    for (outcome, times) in [
        ("admitted", 1),
        ("abandoned", 1),
        ("queue_full", 0),
        ("wait_expired", 1),
        ("denied", 0),
    ] {
        assert_eq!(waits(&counted, "paced", outcome), times, "{outcome}");
    }
    assert_eq!(counted.recorded("tollgate_wait_seconds{rule=paced}"), [0.2]);
    // The one behind kept the time that it was given, so the unit of the one in front lapsed.
    drop((held, expired));
    let lapsed = counted.count("tollgate_wait_units_lapsed_total{rule=paced}");
    assert_eq!(lapsed, 1);
}

#[tokio::test(start_paused = true)]
async fn waits_of_a_worker_are_counted_too() {
    let metrics = Metrics::record();
    let quota = Quota::gcra(10, SECOND).burst(1);
    let limiter = Limiter::new(store(), [Rule::new("provider", quota)]).expect("a valid rule");
    let key = Key::shared();
    for _ in 0..3 {
        let decision = limiter.wait("provider", &key, SECOND).await;
        assert!(decision.expect("room").is_allowed());
    }
    let abandoned = timeout(TENTH / 2, limiter.wait("provider", &key, SECOND));
    assert!(abandoned.await.is_err());
    let checks = [limiter.check("provider", &key).expect("it is there")];
    let first = limiter.acquire_within(&checks, SECOND);
    let late = limiter.acquire_within(&checks, TENTH / 4);
    // It does not wait, and so nobody has left a queue.
    let at_once = limiter.acquire_within(&checks, Duration::ZERO);
    let (first, late, at_once) = tokio::join!(first, late, at_once);
    assert!(first.is_ok() && late.is_err() && at_once.is_err());
    let counted = metrics.counted();
    // However often a request was tried.
    assert_eq!(counted.requests("provider", "allowed"), 4);
    for (outcome, times) in [("admitted", 3), ("abandoned", 1), ("wait_expired", 1)] {
        assert_eq!(waits(&counted, "provider", outcome), times, "{outcome}");
    }
    assert_eq!(counted.gauge("tollgate_waiting{rule=provider}"), 0.0);
}

#[test]
fn what_cannot_wait_is_refused() {
    let rule = || paced(SECOND);
    let error = MessageLimitLayer::new(still().0, [rule()]).expect_err("it is refused");
    assert!(error.to_string().contains("wait_up_to"), "{error}");
    let store = RemoteStore::new(still().0);
    let error = RateLimitLayer::new(store, [rule()]).expect_err("it is refused");
    assert!(error.to_string().contains("leave wait() out"), "{error}");
}
