//! What callers are told about what they have left.

use std::time::{Duration, UNIX_EPOCH};

use axum::{Router, body::Body};
use http::{Request, Response};
use serde_json::{Value, json};
use tollgate::{
    HOUR, Key, LimitsEndpoint, MINUTE, Missing, Quota, RateLimitLayer, Rule,
    clock::Clock,
    key::{client_ip, constant, header, look_up},
    quota::CalendarUnit,
};
use tollgate_conformance::SwitchedStore;
use tollgate_tests::{
    app::{behind, field, get, per_minute, send, still, text},
    counted::Metrics,
};

/// The app behind the layer, with the endpoint outside of it.
fn with_endpoint(layer: &RateLimitLayer) -> Router {
    let endpoint = LimitsEndpoint::new([layer], header("x-caller")).unwrap();
    behind(layer.clone()).route("/limits", endpoint.route())
}

/// Each call is of another caller, so that none waits.
async fn ask(app: &Router, request: http::request::Builder) -> Response<Body> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static CALLERS: AtomicU64 = AtomicU64::new(0);
    let caller = CALLERS.fetch_add(1, Ordering::Relaxed);
    send(app, request.header("x-caller", caller)).await
}

async fn resources(app: &Router, request: http::request::Builder) -> Value {
    let response = ask(app, request).await;
    assert_eq!(response.status(), 200);
    let body: Value = serde_json::from_str(&text(response).await).unwrap();
    body["resources"].clone()
}

fn of_key(path: &str) -> http::request::Builder {
    get(path).header("x-api-key", "acme")
}

#[tokio::test]
async fn each_rule_of_the_caller_is_shown_and_nothing_is_counted() {
    let metrics = Metrics::record();
    let by_key = || header("x-api-key");
    let gold = per_minute("planned", 3).plan("gold", Quota::fixed_window(90, MINUTE));
    let rules = [
        per_minute("per-key", 5)
            .by(by_key())
            .when(|head| head.uri.path() == "/"),
        gold.by(by_key()).plan_by(|_| Some("gold")),
        per_minute("per-ip", 7).by(client_ip()),
        per_minute("tenant", 9)
            .plan("silver", Quota::fixed_window(40, MINUTE))
            .by(look_up(|_| async { Some("t") }))
            .plan_by(|_| Some("silver")),
        per_minute("trial", 1).off().by(by_key()),
        per_minute("shadow", 1).shadow().by(by_key()),
        per_minute("exempt", 1).by(by_key()).exempt(|_| true),
        Rule::new("free", Quota::unlimited()).by(by_key()),
        per_minute("other-key", 1)
            .by(header("x-other"))
            .when_missing(Missing::Skip),
    ];
    let (store, _) = still();
    let app = with_endpoint(&RateLimitLayer::new(store, rules).unwrap());
    send(&app, of_key("/")).await;
    let before = metrics.counted();
    for _ in 0..3 {
        let shown = resources(&app, of_key("/limits")).await;
        let mut numbers = serde_json::Map::new();
        for (rule, numbers_of) in shown.as_object().unwrap() {
            let reset = numbers_of["reset"].as_u64().unwrap();
            let left = reset - Clock::system().now() / 1_000_000;
            assert!(
                (59..=61).contains(&left),
                "the window has just begun: {left}"
            );
            let kept = ["limit", "used", "remaining", "plan"].map(|name| numbers_of[name].clone());
            numbers.insert(rule.clone(), json!(kept));
        }
        let expected = json!({
            "per-key": [5, 1, 4, null],
            "planned": [90, 1, 89, "gold"],
            "per-ip": [7, 1, 6, null],
            "tenant": [40, 1, 39, "silver"],
        });
        assert_eq!(Value::Object(numbers), expected);
    }
    assert_eq!(before.requests("per-key", "allowed"), 1);
    let after = metrics.counted();
    for rule in ["per-key", "planned", "per-ip", "tenant", "exempt", "free"] {
        assert_eq!(
            after.sum("tollgate_requests_total", &[("rule", rule)]),
            0,
            "{rule}"
        );
    }
}

#[tokio::test]
async fn a_caller_may_ask_once_a_second_and_another_is_not_held_up() {
    let layer = RateLimitLayer::new(still().0, [per_minute("all", 9).by(constant("all"))]).unwrap();
    let app = with_endpoint(&layer);
    let ask = async |caller: &str| {
        let response = send(&app, Request::get("/limits").header("x-caller", caller)).await;
        (response.status().as_u16(), response)
    };
    let (status, response) = ask("ada").await;
    assert_eq!(
        (status, field(&response, "cache-control")),
        (200, "no-store")
    );
    assert_eq!(field(&response, "content-type"), "application/json");
    // On a machine that stands still a second may be over.
    let response = loop {
        let (status, response) = ask("ada").await;
        if status != 200 {
            break response;
        }
    };
    assert_eq!(response.status(), 429);
    assert_eq!(field(&response, "retry-after"), "1");
    // It is no rule of the service.
    assert_eq!(field(&response, "ratelimit"), "");
    assert!(!text(response).await.contains("limits-endpoint"));
    assert_eq!(ask("bob").await.0, 200);
}

#[tokio::test]
async fn the_reset_is_the_second_in_which_all_is_there_again() {
    let rule = Rule::new("per-key", Quota::gcra(9, MINUTE)).by(header("x-api-key"));
    let layer = RateLimitLayer::new(still().0, [rule]).unwrap();
    let app = with_endpoint(&layer);
    send(&app, of_key("/")).await;
    let now = || Clock::system().now();
    let before = now();
    let shown = resources(&app, of_key("/limits")).await;
    let reset = shown["per-key"]["reset"].as_u64().expect("a number");
    // A ninth of a minute, and the rest of that second; by the clock of the service, while the store's stands still at noon.
    let after = |at: u64| (at + 60_000_000 / 9).div_ceil(1_000_000);
    assert!(
        (after(before)..=after(now()) + 1).contains(&reset),
        "{reset}"
    );
}

#[tokio::test]
async fn an_answer_says_what_it_does_not_know() {
    let store = SwitchedStore::at_once(still().0);
    let rule = |name| per_minute(name, 9).by(header("x-api-key"));
    let layer = RateLimitLayer::new(store.clone(), [rule("one"), rule("two")]).unwrap();
    let app = with_endpoint(&layer);
    store.switch(false);
    let shown = resources(&app, of_key("/limits")).await;
    let unknown = json!({ "limit": 9, "used": null, "remaining": null, "reset": null });
    assert_eq!(shown, json!({ "one": unknown, "two": unknown }));
}

#[tokio::test]
async fn slots_come_back_when_requests_end_and_not_at_a_time() {
    let rule = Rule::new("exports", Quota::concurrent(3)).by(constant("all"));
    let layer = RateLimitLayer::new(still().0, [rule]).unwrap();
    let app = with_endpoint(&layer);
    let _running = send(&app, get("/")).await;
    let shown = resources(&app, get("/limits")).await;
    let slots = json!({ "limit": 3, "used": 1, "remaining": 2, "reset": null });
    assert_eq!(shown["exports"], slots);
}

#[tokio::test]
async fn rules_of_a_layer_that_hides_its_quota_are_not_shown() {
    let rule = Rule::new("secret", Quota::gcra(9, HOUR)).by(header("x-api-key"));
    let layer = RateLimitLayer::new(still().0, [rule]).unwrap().hide_quota();
    let app = with_endpoint(&layer);
    assert_eq!(resources(&app, of_key("/limits")).await, json!({}));
}

#[tokio::test]
async fn a_balance_is_shown_with_its_end() {
    let rule = per_minute("per-key", 1).credits().by(header("x-api-key"));
    let (store, clock) = still();
    let layer = RateLimitLayer::new(store, [rule]).unwrap();
    let app = with_endpoint(&layer);
    let shown = resources(&app, of_key("/limits")).await;
    assert_eq!(shown["per-key"]["credits"], Value::Null, "{shown}");
    let (head, ()) = of_key("/").body(()).unwrap().into_parts();
    let key: Key = layer.key_of("per-key", &head).unwrap();
    let end = UNIX_EPOCH + Duration::from_micros(clock.now()) + HOUR;
    let granted = layer.limiter().grant("per-key", &key, 5, end, "one");
    assert!(granted.unwrap().await.is_ok());
    for _ in 0..3 {
        assert_eq!(send(&app, of_key("/")).await.status(), 200);
    }
    let shown = &resources(&app, of_key("/limits")).await["per-key"];
    let until = end.duration_since(UNIX_EPOCH).unwrap().as_secs();
    assert_eq!(
        (&shown["credits"], &shown["credits_until"]),
        (&json!(3), &json!(until)),
        "{shown}"
    );
    assert_eq!(shown["remaining"], 0, "{shown}");
}

#[tokio::test]
async fn a_window_of_a_calendar_is_shown_with_its_end() {
    let year = Quota::calendar(9, CalendarUnit::Year).zone("Asia/Kathmandu");
    let layer = RateLimitLayer::new(still().0, [Rule::new("budget", year).by(constant("all"))]);
    let shown = resources(&with_endpoint(&layer.unwrap()), get("/limits")).await;
    let end = shown["budget"]["window_end"].as_str().unwrap();
    assert!(
        end.ends_with("-01-01T00:00:00+05:45[Asia/Kathmandu]"),
        "{end}"
    );
}
