//! Clients of other ecosystems that wait for as long as `Retry-After` says: Python's urllib3 (and requests, which stands on
//! it) and httpx with httpx-retries.

use std::{sync::atomic::Ordering, time::Duration};

use axum::{Router, extract::Path, routing::get};
use serde_json::{Value, json};
use tollgate::{MINUTE, Quota, RateLimitLayer, Rule, header::HeaderStyle, key::constant};
use tollgate_tests::server::{Server, counting_denials};

use crate::program::python;
use tollgate_tests::app::still;

/// Four requests in a minute, by each algorithm.
fn quotas() -> [Quota; 7] {
    [
        Quota::gcra(4, MINUTE),
        Quota::token_bucket(4).refill(1, Duration::from_millis(7_300)),
        Quota::leaky_bucket(4).leak(3, MINUTE),
        Quota::fixed_window(4, MINUTE),
        Quota::sliding_window(4, MINUTE),
        Quota::sliding_buckets(4, MINUTE),
        Quota::sliding_log(4, MINUTE),
    ]
}

/// What a client of Python meets, and how often it was refused.
async fn sends(client: &str, quota: Quota, style: HeaderStyle) -> (Value, u64) {
    let (store, clock) = still();
    let rule = Rule::new("calls", quota).by(constant("all"));
    let limits = RateLimitLayer::new(store, [rule]).expect("a valid rule");
    let limits = limits.headers(style).expect("styles that go together");
    let wait = move |Path(micros): Path<u64>| {
        clock.advance(Duration::from_micros(micros));
        async { "it is later" }
    };
    let hello = Router::new().route("/", get(|| async { "hello" }));
    let (app, refused) = counting_denials(hello.layer(limits));
    let server = Server::start(app.route("/wait/{micros}", get(wait))).await;
    let url = format!("http://{}", server.address());
    let sent = json!({ "client": client, "url": url, "requests": 9 });
    let met = python("waiting_clients.py", &sent).await;
    (met, refused.load(Ordering::SeqCst))
}

#[tokio::test]
async fn clients_that_obey_retry_after_are_denied_once_and_then_pass() {
    for client in ["urllib3", "httpx-retries"] {
        for quota in quotas() {
            let (met, refused) = sends(client, quota, HeaderStyle::DRAFT_11).await;
            assert_eq!(
                met["statuses"],
                json!(vec![200; 9]),
                "{client}, {quota:?}: {met}"
            );
            let waits = met["waits"].as_array().expect("a list");
            // Each refusal is one wait, and is not followed by another.
            assert!((1..=5).contains(&refused), "{client}, {quota:?}: {met}");
            assert_eq!(waits.len() as u64, refused, "{client}, {quota:?}: {met}");
        }
    }
}
