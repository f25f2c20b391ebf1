//! Growing blocks in the layer: who fails again and again is refused for a time, and who does not is not.

use std::{
    convert::Infallible,
    future::{Future, pending},
    pin::pin,
    task::{Context, Waker},
    time::Duration,
};

use axum::body::Body;
use http::{Request, Response, StatusCode};
use tollgate::{
    Admission, Block, HOUR, Key, MINUTE, MemoryStore, Quota, RateLimitLayer, RequestRule, Rule,
    SECOND, clock::ManualClock, key::header,
};
use tollgate_tests::{
    app::{field, get},
    events::Events,
};
use tower::{Layer, ServiceExt, service_fn};
use tracing::Level;

fn login() -> RequestRule {
    let block = Block::after(5)
        .within(10 * MINUTE)
        .for_each([MINUTE, 10 * MINUTE, HOUR]);
    Rule::new("login", Quota::sliding_log(50, SECOND))
        .by(header("x-client"))
        .count_if(|response| response.status() == 401)
        .block(block)
}

fn layer(clock: &ManualClock, rules: impl IntoIterator<Item = RequestRule>) -> RateLimitLayer {
    let store = MemoryStore::builder().clock(clock).build();
    RateLimitLayer::new(store, rules).expect("valid rules")
}

fn from(client: &str, password: &str) -> Request<Body> {
    let request = get("/")
        .header("x-client", client)
        .header("x-password", password);
    request.body(Body::empty()).expect("a request")
}

async fn check(request: Request<Body>) -> Result<Response<Body>, Infallible> {
    let mut response = Response::new(Body::empty());
    if request.headers()["x-password"] != "sesame" {
        *response.status_mut() = StatusCode::UNAUTHORIZED;
    }
    Ok(response)
}

async fn attempt(limits: &RateLimitLayer, client: &str, password: &str) -> Response<Body> {
    let service = limits.layer(service_fn(check));
    let response = service.oneshot(from(client, password)).await.unwrap();
    response.map(Body::new)
}

#[tokio::test]
async fn the_fifth_failure_blocks_and_the_next_block_is_longer() {
    let clock = ManualClock::new(1_700_000_000_000_000);
    let limits = layer(&clock, [login()]);
    let events = Events::listen();
    for time in ["60", "600", "3600", "3600"] {
        for n in 0..5 {
            assert_eq!(attempt(&limits, "mallory", "sesame").await.status(), 200);
            let failed = attempt(&limits, "mallory", "guess").await;
            assert_eq!(failed.status(), 401, "{n}");
        }
        let blocked = attempt(&limits, "mallory", "sesame").await;
        assert_eq!(blocked.status(), 429);
        // An event for each block, which names no client.
        let began = events.at(Level::INFO);
        let seconds = format!("seconds={time} ");
        let is_last = |last: &String| last.contains("key blocked") && last.contains(&seconds);
        assert!(began.last().is_some_and(is_last), "{began:?}");
        assert!(!began.concat().contains("mallory"));
        assert_eq!(field(&blocked, "retry-after"), time);
        assert_eq!(attempt(&limits, "ann", "sesame").await.status(), 200);
        let seconds = time.parse().expect("a number");
        clock.advance(Duration::from_secs(seconds));
    }
}

#[tokio::test]
async fn who_hangs_up_counts_and_a_service_that_fails_does_not() {
    let clock = ManualClock::new(1_700_000_000_000_000);
    let limits = layer(&clock, [login()]);
    for _ in 0..9 {
        let failing = service_fn(|_: Request<Body>| async { Err::<Response<Body>, _>("down") });
        assert!(
            limits
                .layer(failing)
                .oneshot(from("ann", ""))
                .await
                .is_err()
        );
    }
    assert_eq!(attempt(&limits, "ann", "sesame").await.status(), 200);
    for _ in 0..5 {
        let hangs = service_fn(|_: Request<Body>| pending::<Result<Response<Body>, Infallible>>());
        let mut request = pin!(limits.layer(hangs).oneshot(from("ann", "guess")));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(request.as_mut().poll(&mut cx).is_pending());
    }
    assert_eq!(attempt(&limits, "ann", "sesame").await.status(), 429);
}

#[tokio::test]
async fn an_office_that_logs_in_within_a_second_is_not_blocked() {
    let clock = ManualClock::new(1_700_000_000_000_000);
    let limits = layer(&clock, [login()]);
    let (answer, _) = tokio::sync::broadcast::channel::<()>(1);
    let slow = |request: Request<Body>| {
        let mut waits = answer.subscribe();
        async move {
            let _ = waits.recv().await;
            check(request).await
        }
    };
    // Fifty at once, four of whom mistype, and twenty more find no room: none of that is abuse.
    let people = (0..70).map(|n| {
        let password = if n < 4 { "sesam" } else { "sesame" };
        limits
            .layer(service_fn(slow))
            .oneshot(from("office", password))
    });
    let people: Vec<_> = people.map(Box::pin).collect();
    let mut statuses = Vec::new();
    let mut waiting = Vec::new();
    for mut person in people {
        let mut cx = Context::from_waker(Waker::noop());
        match person.as_mut().poll(&mut cx) {
            std::task::Poll::Ready(response) => statuses.push(response.unwrap().status().as_u16()),
            std::task::Poll::Pending => waiting.push(person),
        }
    }
    assert_eq!(statuses, [429; 20]);
    answer.send(()).unwrap();
    for person in waiting {
        statuses.push(person.await.unwrap().status().as_u16());
    }
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 46);
    assert_eq!(attempt(&limits, "office", "sesame").await.status(), 200);
}

/// By address in the layer, and by account in the handler: ten thousand addresses guess the password of one account.
#[tokio::test]
async fn many_addresses_against_one_account_are_stopped_by_the_account() {
    let clock = ManualClock::new(1_700_000_000_000_000);
    let block = Block::after(20)
        .within(HOUR)
        .for_each([HOUR])
        .count_settled();
    let account = Rule::new("account", Quota::sliding_log(20, HOUR)).block(block);
    let limits = layer(&clock, [login(), account.by_handler()]);
    let service = |request: Request<Body>| async move {
        let admission = request.extensions().get::<Admission>().cloned().unwrap();
        let account = request.headers()["x-password"].to_str().unwrap();
        let account = account
            .split_once('@')
            .map_or("ann", |(account, _)| account);
        match admission
            .acquire_ticket("account", &Key::of([account]))
            .await
        {
            Ok(ticket) if request.headers()["x-password"] == "bob@sesame" => {
                ticket.cancel();
                Ok::<_, Infallible>(StatusCode::OK)
            }
            Ok(_failed) => Ok(StatusCode::UNAUTHORIZED),
            Err(_) => Ok(StatusCode::TOO_MANY_REQUESTS),
        }
        .map(|status| {
            Response::builder()
                .status(status)
                .body(Body::empty())
                .unwrap()
        })
    };
    let mut looked_at = 0;
    for n in 0..10_000 {
        let service = limits.layer(service_fn(service));
        let response = service
            .oneshot(from(&format!("bot-{n}"), "ann@guess"))
            .await;
        looked_at += u32::from(response.unwrap().status() == 401);
    }
    assert_eq!(looked_at, 20, "the account is blocked");
    let service = limits.layer(service_fn(service));
    let bob = service.oneshot(from("office", "bob@sesame")).await;
    assert_eq!(bob.unwrap().status(), 200, "nobody else is refused");
}
