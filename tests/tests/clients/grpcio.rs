//! Python's gRPC: what its users see of a denial, and what its own retry policy makes of it.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::time::Instant;
use tollgate::{
    MINUTE, OnStoreError, Quota, RateLimitLayer, Rule, SECOND,
    key::{constant, header},
};
use tollgate_conformance::SwitchedStore;

use crate::{
    per_minute,
    weather::{Seen, Weather},
};
use tollgate_tests::app::{layer, still};

/// The fields of a budget in some metadata.
fn budget(metadata: &Value) -> Vec<&String> {
    let names = metadata.as_object().expect("metadata").keys();
    names.filter(|name| name.contains("ratelimit")).collect()
}

#[tokio::test]
async fn a_denied_call_is_resource_exhausted_with_details_that_python_knows() {
    let server = Weather::behind(layer([per_minute("one", 1)])).await;
    let reported = server.calls(&["Current", "Current"]).await;
    let denied = &reported[1];
    assert_eq!(denied["code"], "RESOURCE_EXHAUSTED");
    assert_eq!(denied["message"], "rate limit exceeded");
    assert_eq!(
        denied["details"],
        json!({
            "RetryInfo": { "retry_delay": "60s" },
            "QuotaFailure": { "violations": [{
                "subject": "policy:one",
                "description": "Policy \"one\" allows 1 request per 60 s.",
                "quota_id": "one",
                "quota_value": "1",
            }] },
            "ErrorInfo": { "reason": "RATE_LIMIT_EXCEEDED", "domain": "weather.v1.Weather" },
        })
    );
    for (name, value) in [
        ("grpc-retry-pushback-ms", "60000"),
        ("retry-after", "60"),
        ("ratelimit", r#""one";r=0;t=60"#),
        ("ratelimit-policy", r#""one";q=1;w=60"#),
    ] {
        assert_eq!(denied["trailing"][name], value, "{name}");
    }
    // It came as trailers and nothing else.
    assert_eq!(denied["initial"], json!({}));
    assert_eq!(server.reached(), (1, 0));
}

#[tokio::test]
async fn calls_of_every_kind_are_denied_alike_and_before_their_messages() {
    let server = Weather::behind(layer([per_minute("one", 1)])).await;
    let reported = server
        .calls(&["Current", "Current", "Watch", "Record", "Exchange"])
        .await;
    for streaming in &reported[2..] {
        assert_eq!(streaming, &reported[1]);
    }
    assert_eq!(server.reached(), (1, 0));
}

#[tokio::test]
async fn the_retry_policy_of_a_client_waits_for_the_pushback() {
    let (store, clock) = still();
    let rule = Rule::new("steady", Quota::gcra(1, SECOND)).by(constant("all"));
    let limits = RateLimitLayer::new(store, [rule]).unwrap();
    // The clock stands still until the retry comes, and then shows how long the client has really waited. On a slow
    // machine that is longer, never shorter.
    let denied = Mutex::new(None);
    let watch = move |seen| {
        let mut denied = denied.lock().unwrap();
        match seen {
            Seen::Denied(_) => *denied = Some(Instant::now()),
            Seen::Retry(0) => {}
            Seen::Retry(_) => {
                let since = denied.take().expect("a retry follows a denial");
                clock.advance(since.elapsed());
            }
        }
    };
    let watch = Arc::new(watch);
    let server = Weather::watched(limits, 1, move |seen| watch(seen)).await;
    let reported = server
        .calls_with_retries_of("RESOURCE_EXHAUSTED", &["Current", "Current"])
        .await;
    assert_eq!(reported[1]["code"], "OK");
    // With its own backoff of 10 ms the client would have been denied again.
    assert_eq!(
        server.seen(),
        [
            Seen::Retry(0),
            Seen::Retry(0),
            Seen::Denied(8),
            Seen::Retry(1)
        ]
    );
}

#[tokio::test]
async fn a_cost_that_never_fits_is_not_retried() {
    let never = per_minute("small", 5).cost_by(|_| 6);
    let server = Weather::behind(layer([never])).await;
    let reported = server
        .calls_with_retries_of("RESOURCE_EXHAUSTED", &["Current"])
        .await;
    assert_eq!(reported[0]["code"], "RESOURCE_EXHAUSTED");
    assert_eq!(reported[0]["trailing"]["grpc-retry-pushback-ms"], "-1");
    assert_eq!(reported[0]["trailing"].get("retry-after"), None);
    assert_eq!(reported[0]["details"].get("RetryInfo"), None);
    assert_eq!(
        reported[0]["details"]["ErrorInfo"]["reason"],
        "COST_EXCEEDS_LIMIT"
    );
    assert_eq!(server.seen(), [Seen::Retry(0), Seen::Denied(8)]);
}

#[tokio::test]
async fn a_failed_store_is_unavailable_without_numbers_and_the_client_backs_off_by_itself() {
    let store = SwitchedStore::at_once(still().0);
    store.switch(false);
    let rule = Rule::new("strict", Quota::fixed_window(5, MINUTE))
        .on_store_error(OnStoreError::Deny)
        .by(constant("all"));
    let limits = RateLimitLayer::new(store, [rule]).unwrap();
    let server = Weather::behind(limits).await;
    let reported = server
        .calls_with_retries_of("UNAVAILABLE", &["Current"])
        .await;
    assert_eq!(reported[0]["code"], "UNAVAILABLE");
    assert_eq!(reported[0]["message"], "service unavailable");
    assert_eq!(reported[0]["details"], json!({}));
    assert!(
        budget(&reported[0]["trailing"]).is_empty(),
        "{}",
        reported[0]
    );
    for invented in ["retry-after", "grpc-retry-pushback-ms"] {
        assert_eq!(reported[0]["trailing"].get(invented), None, "{invented}");
    }
    let denied = Seen::Denied(14);
    assert_eq!(
        server.seen(),
        [
            Seen::Retry(0),
            denied,
            Seen::Retry(1),
            denied,
            Seen::Retry(2),
            denied
        ]
    );
}

#[tokio::test]
async fn a_denial_by_many_policies_is_short_enough_for_a_client() {
    // grpcio takes 8 KiB of metadata, and of more drops the call at random.
    for count in [20, 60] {
        let names = (0..count).map(|n| format!("a-policy-with-a-rather-long-name-number-{n}"));
        let rules = names
            .map(|name| Rule::new(name, Quota::fixed_window(1, MINUTE)).by(constant("all")))
            // The first call would be too long as well, with what is left of each.
            .map(|rule| rule.cost_by(|_| 2));
        let server = Weather::behind(layer(rules)).await;
        let reported = server.calls(&["Current"; 10]).await;
        for reported in reported {
            assert_eq!(reported["code"], "RESOURCE_EXHAUSTED");
            assert_eq!(reported["trailing"]["grpc-retry-pushback-ms"], "-1");
            let violations = reported["details"]["QuotaFailure"]["violations"].as_array();
            assert!(
                violations.is_some_and(|named| named.len() > 10),
                "{reported}"
            );
        }
    }
}

#[tokio::test]
async fn denied_streams_do_not_disturb_the_others_of_their_connection() {
    const EACH: usize = 20;
    let rule = Rule::new("each", Quota::fixed_window(EACH as u64, MINUTE)).by(header("x-api-key"));
    // More than there ever is, for one of the keys.
    let dear = rule.cost_by(|head| {
        let poor = head
            .headers
            .get("x-api-key")
            .is_some_and(|key| key == "poor");
        if poor { 1 + EACH as u64 } else { 1 }
    });
    // Who is allowed waits for all the others that are, so that they are open together.
    let server = Weather::for_groups_of(EACH, layer([dear])).await;
    let keys = ["poor", "rich"].repeat(EACH);
    let reported = server.calls_together(&keys).await;
    for (key, reported) in keys.iter().zip(&reported) {
        let code = match *key {
            "poor" => "RESOURCE_EXHAUSTED",
            _ => "OK",
        };
        assert_eq!(reported["code"], code, "{key}: {reported}");
    }
    assert_eq!(reported.len(), keys.len());
    assert_eq!(server.reached(), (EACH as u64, 0));
    assert_eq!(server.connections(), 1);
}
