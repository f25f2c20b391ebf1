//! What a request gets when the store fails.

use std::{num::NonZeroU32, time::Duration};

use axum::{Router, routing};
use http::Method;
use tokio::time::{Instant, sleep};
use tollgate::{
    Admission, MINUTE, OnStoreError, Quota, RateLimitLayer, RequestRule, condition::method_in,
    header::HeaderStyle,
};
use tollgate_conformance::SwitchedStore;
use tollgate_tests::{
    app::{NOON, all, behind, get, per_minute, status, still, stores},
    events::Events,
    server::{Answer, Server},
};
use tracing::Level;

fn rule(name: &'static str, limit: u64, answer: OnStoreError) -> RequestRule {
    all(per_minute(name, limit).on_store_error(answer))
}

/// A server whose store fails, at once and after a wait.
async fn failing(rules: &[RequestRule]) -> [Server; 2] {
    let [one, two] = stores().map(|store| {
        store.switch(false);
        served(RateLimitLayer::new(store, rules.to_vec()).unwrap())
    });
    [one.await, two.await]
}

async fn served(layer: RateLimitLayer) -> Server {
    let handler = |admission: Admission| async move {
        if admission.decision().is_degraded() {
            "degraded"
        } else {
            "as ever"
        }
    };
    let layer = layer.attach_decision();
    Server::start(Router::new().route("/", routing::get(handler).layer(layer))).await
}

fn reported(answer: &Answer) -> (u16, Option<&str>) {
    (answer.status, answer.header("ratelimit"))
}

#[tokio::test]
async fn allow_passes_without_numbers() {
    for answer in [OnStoreError::Allow, OnStoreError::Degraded] {
        for server in failing(&[rule("lenient", 1, answer)]).await {
            for _ in 0..3 {
                let answer = server.get("/").await;
                assert_eq!((answer.status, &*answer.body), (200, "degraded"));
                assert!(!answer.tells_budget(), "{answer:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_share_is_full_again_at_a_time_of_today() {
    let share = rule("counted", 1, OnStoreError::LocalShare);
    for store in stores() {
        store.switch(false);
        let layer = RateLimitLayer::new(store, [share.clone()]).unwrap();
        let layer = layer.headers(HeaderStyle::X_RATELIMIT_EPOCH).unwrap();
        let server = served(layer).await;
        for status in [200, 429] {
            let answer = server.get("/").await;
            assert_eq!(answer.status, status);
            // By the clock of this process, whatever the store's says.
            let reset = answer.header("x-ratelimit-reset").expect("a time");
            let reset: u64 = reset.parse().expect("a number");
            assert!(reset > NOON / 1_000_000, "{reset}");
        }
    }
}

#[tokio::test]
async fn reads_fail_open_and_writes_fail_closed_on_one_budget() {
    let rule = all(per_minute("shared", 3).on_store_error(OnStoreError::Allow))
        .on_store_error_when(method_in([Method::POST]), OnStoreError::Deny)
        // A later one that is true as well does not count.
        .on_store_error_when(|_| true, OnStoreError::Allow);
    for store in stores() {
        let layer = RateLimitLayer::new(store.clone(), [rule.clone()]).unwrap();
        let app = behind(layer);
        let post = || get("/").method(Method::POST);
        assert_eq!(status(&app, "/").await, 200);
        assert_eq!(status(&app, post()).await, 200);
        store.switch(false);
        for _ in 0..5 {
            assert_eq!(status(&app, "/").await, 200);
            assert_eq!(status(&app, post()).await, 503);
        }
        // One of the three units is left.
        store.switch(true);
        assert_eq!(status(&app, post()).await, 200);
        assert_eq!(status(&app, "/").await, 429);
        assert_eq!(status(&app, post()).await, 429);
    }
}

#[test]
fn an_answer_that_counts_can_only_be_the_rule_s_own() {
    let store = still().0;
    let cap = OnStoreError::Cap(Quota::fixed_window(1, MINUTE));
    let new = |own, other| {
        let rule = all(per_minute("shared", 3).on_store_error(own));
        let rule = rule.on_store_error_when(|_| true, other);
        RateLimitLayer::new(store.clone(), [rule]).map(|_| ())
    };
    for own in [OnStoreError::LocalShare, cap] {
        assert!(new(own, own).is_ok());
    }
    for (own, other) in [
        (OnStoreError::Deny, OnStoreError::LocalShare),
        (OnStoreError::LocalShare, cap),
    ] {
        let text = new(own, other).expect_err("it counts").to_string();
        assert!(
            text.contains("rule \"shared\": on_store_error_when: "),
            "{text}"
        );
        assert!(text.contains("one share or one cap"), "{text}");
    }
}

#[tokio::test]
async fn a_local_share_is_smaller_with_more_instances() {
    let store = SwitchedStore::at_once(still().0);
    store.switch(false);
    let rules = [rule("usual", 6, OnStoreError::LocalShare)];
    let layer = RateLimitLayer::new(store.clone(), rules).unwrap();
    let layer = layer.instances(NonZeroU32::new(3).unwrap()).unwrap();
    let server = served(layer).await;
    for status in [200, 200, 429] {
        assert_eq!(server.get("/").await.status, status);
    }
    // The store's own count knows nothing of it.
    store.switch(true);
    assert_eq!(
        reported(&server.get("/").await),
        (200, Some(r#""usual";r=5;t=60"#))
    );
}

#[tokio::test]
async fn a_store_failure_is_reported_whatever_the_fallback() {
    for answer in [
        OnStoreError::Allow,
        OnStoreError::Deny,
        OnStoreError::Degraded,
        OnStoreError::LocalShare,
        OnStoreError::Cap(Quota::fixed_window(3, MINUTE)),
    ] {
        let events = Events::listen();
        for server in failing(&[rule("named", 5, answer)]).await {
            server.get("/").await;
            let warnings = events.at(Level::WARN).concat();
            assert!(warnings.contains("named"), "{answer:?}: {warnings:?}");
        }
    }
}

#[tokio::test]
async fn a_store_that_responds_again_is_reported_with_the_rules_of_its_layer() {
    let events = Events::listen();
    let [store, _] = stores();
    store.switch(false);
    let rules = ["per-key", "per-tenant"].map(|name| rule(name, 1_000_000, OnStoreError::Allow));
    let layer = RateLimitLayer::new(store.clone(), rules.to_vec()).unwrap();
    let server = served(layer).await;
    server.get("/").await;
    store.switch(true);
    // It is not reported before it has not failed for a while.
    let patience = Instant::now() + Duration::from_secs(60);
    while events.at(Level::INFO).is_empty() {
        assert!(Instant::now() < patience, "it is not reported");
        server.get("/").await;
        sleep(Duration::from_millis(20)).await;
    }
    events.one(Level::INFO, &["responds again", "per-key, per-tenant"]);
}
