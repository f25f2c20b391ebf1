//! Denials that are held back, and challenges in the place of the service.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body};
use bytes::Bytes;
use http::{Method, Response, StatusCode};
use tokio::{net::TcpListener, sync::oneshot, time::Instant};
use tollgate::{MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, SECOND, key::constant};
use tollgate_tests::app::{
    all, app_on, behind, field, get, layer, per_minute, send, status, stores, text,
};

#[tokio::test(start_paused = true)]
async fn as_many_denials_as_the_rule_says_are_held_and_the_others_are_sent_at_once() {
    for store in stores() {
        let slow = all(per_minute("slow", 1)).slow_denials(2 * SECOND, 2);
        let app = app_on(store, [slow, all(per_minute("fast", 100))]);
        let begin = Instant::now();
        assert_eq!(status(&app, "/").await, 200);
        assert_eq!(begin.elapsed(), Duration::ZERO);
        let denials = || async {
            let begin = Instant::now();
            let denied = send(&app, "/").await;
            (denied.status().as_u16(), begin.elapsed())
        };
        let held = tokio::join!(denials(), denials(), denials());
        let mut held_ones = [held.0, held.1, held.2];
        held_ones.sort_unstable();
        let [at_once, held] = [Duration::ZERO, 2 * SECOND].map(|time| (429, time));
        assert_eq!(held_ones, [at_once, held, held]);
        // A client that hangs up leaves its place.
        let gone = tokio::time::timeout(SECOND, async { tokio::join!(denials(), denials()) });
        assert!(gone.await.is_err());
        assert_eq!(denials().await, (429, 2 * SECOND));
        // A call is answered while its client is there.
        let call = get("/weather.v1.Weather/Current").method(Method::POST);
        let call = call
            .header("content-type", "application/grpc")
            .header("grpc-timeout", "500m");
        let begin = Instant::now();
        let denied = send(&app, call).await;
        assert_eq!(field(&denied, "grpc-status"), "8");
        assert_eq!(begin.elapsed(), SECOND / 4);
    }
    for (by, at_most) in [(Duration::ZERO, 1), (SECOND, 0), (61 * SECOND, 1)] {
        let rule = all(per_minute("slow", 1)).slow_denials(by, at_most);
        let error = RateLimitLayer::new(MemoryStore::new(), [rule]).unwrap_err();
        assert!(error.to_string().contains("2 * SECOND"), "{error}");
    }
}

#[tokio::test]
async fn a_graceful_shutdown_ends_denials_that_are_held_back() {
    let slow = all(per_minute("slow", 1)).slow_denials(MINUTE, 9);
    let limits = layer([slow]);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (shut_down, ends) = oneshot::channel::<()>();
    let end = {
        let limits = limits.clone();
        async move {
            let _ = ends.await;
            limits.end_slow_denials();
        }
    };
    let server = axum::serve(listener, behind(limits.clone())).with_graceful_shutdown(end);
    let server = tokio::spawn(server.into_future());
    assert_eq!(reqwest::get(&url).await.unwrap().status(), 200);
    let denials: Vec<_> = (0..3)
        .map(|_| tokio::spawn(reqwest::get(url.clone())))
        .collect();
    let denied = || {
        let counts = limits.limiter().counts();
        counts
            .iter()
            .map(|counts| counts.decided("denied"))
            .sum::<u64>()
    };
    while denied() < 3 {
        tokio::task::yield_now().await;
    }
    shut_down.send(()).unwrap();
    // It hangs otherwise: nobody gets to the end of a minute here.
    let ended = tokio::time::timeout(50 * SECOND, server).await;
    ended.expect("nothing is held").unwrap().unwrap();
    for denial in denials {
        assert_eq!(denial.await.unwrap().unwrap().status(), 429);
    }
}

#[tokio::test]
async fn a_challenge_answers_above_its_threshold_and_count_if_sees_it() {
    for store in stores() {
        let served = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&served);
        let rule = Rule::new("log-in", Quota::sliding_log(5, MINUTE))
            .threshold("doubtful", Quota::sliding_log(2, MINUTE))
            .by(constant("all"))
            .count_if(|response| response.status() != 200)
            .challenge("doubtful", |head, verdict| {
                assert!(!head.uri.path().is_empty() && verdict.has_numbers());
                let solved = head.headers.contains_key("x-solved");
                let mut response = Response::new(Bytes::from_static(b"are you human?"));
                *response.status_mut() = StatusCode::UNAUTHORIZED;
                (!solved).then_some(response)
            });
        let handler = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            async { StatusCode::FORBIDDEN }
        };
        let layer = RateLimitLayer::new(store, [rule]).unwrap();
        let app: Router = Router::new().fallback(handler).layer(layer);
        // Two failures, then a challenge; one who solves it is served, and the fifth failure is the last.
        for (solved, expected) in [
            (false, 403),
            (false, 403),
            (false, 401),
            (true, 403),
            (false, 401),
            (true, 429),
        ] {
            let request = match solved {
                true => get("/").header("x-solved", "7"),
                false => get("/"),
            };
            let answer = send(&app, request).await;
            assert_eq!(answer.status(), expected);
            if expected == 401 {
                assert_eq!(text(answer).await, "are you human?");
            }
        }
        assert_eq!(served.load(Ordering::Relaxed), 3);
    }
    let unknown = all(per_minute("log-in", 5)).challenge("doubtful", |_, _| None);
    let error = RateLimitLayer::new(MemoryStore::new(), [unknown]).unwrap_err();
    assert!(error.to_string().contains("challenge: ") && error.to_string().contains("doubtful"));
    // Below the threshold nobody is asked, nor by a shadow above it.
    let rule = per_minute("log-in", 5).threshold("doubtful", Quota::fixed_window(4, MINUTE));
    let asks = |rule| all(rule).challenge("doubtful", |_, _| Some(Response::new("human?".into())));
    let app = behind(layer([asks(rule.clone())]));
    let answer: Response<Body> = send(&app, "/").await;
    assert_eq!(field(&answer, "ratelimit"), r#""log-in";r=4;t=60"#);
    let app = behind(layer([asks(rule.shadow())]));
    for _ in 0..6 {
        assert_eq!(text(send(&app, "/").await).await, "");
    }
}
