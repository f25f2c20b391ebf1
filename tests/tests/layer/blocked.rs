//! What clients and operators see of a limit of none.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, UNIX_EPOCH},
};

use axum::body::Body;
use http::{Request, StatusCode};
use serde_json::json;
use tollgate::{
    Admission, Denied, HOUR, LimitsEndpoint, MINUTE, MemoryStore, Missing, Quota, RateLimitLayer,
    RequestRule, Rule,
    condition::in_list,
    header::HeaderStyle,
    key::{client_ip, constant, header, look_up},
    key_list::KeyList,
};
use tollgate_tests::{
    app::{NOON, behind, field, get, layer, per_minute, send, still, text},
    counted::Metrics,
};

fn blocked(quota: Quota) -> RequestRule {
    let rule = Rule::new("keys", Quota::fixed_window(9, MINUTE)).plan("blocked", quota);
    rule.by(header("x-api-key")).plan_by(|head| {
        let is_blocked = head.headers.get("x-api-key")? == "mallory";
        is_blocked.then_some("blocked")
    })
}

fn of(client: &str, path: &str) -> Request<Body> {
    let request = get(path).header("x-api-key", client);
    request.body(Body::empty()).expect("a request")
}

fn for_an_hour() -> Quota {
    Quota::none().until(UNIX_EPOCH + Duration::from_micros(NOON) + HOUR)
}

#[tokio::test]
async fn a_blocked_client_is_told_so_and_the_fields_are_those_of_the_others() {
    let metrics = Metrics::record();
    let layer = layer([
        per_minute("all", 5).by(constant("all")),
        blocked(for_an_hour()),
    ]);
    let styles = HeaderStyle::DRAFT_11 | HeaderStyle::X_RATELIMIT_DELTA;
    let app = behind(layer.clone().headers(styles).unwrap());
    let denied = send(&app, of("mallory", "/")).await;
    assert_eq!(denied.status(), 403);
    assert_eq!(field(&denied, "retry-after"), "3600");
    for name in ["ratelimit", "ratelimit-policy", "x-ratelimit-limit"] {
        assert_eq!(field(&denied, name), "");
    }
    let problem: serde_json::Value = serde_json::from_str(&text(denied).await).unwrap();
    assert_eq!(problem["reason"], "blocked");
    assert_eq!(problem["title"], "Forbidden");
    // The rule for all has not counted the request.
    let fine = send(&app, of("ann", "/")).await;
    assert_eq!(
        field(&fine, "ratelimit"),
        r#""all";r=4;t=60, "keys";r=8;t=60"#
    );
    let counted = metrics.counted();
    assert_eq!(counted.requests("keys", "denied"), 1);
    let counts = layer.limiter().counts();
    let keys = counts.iter().find(|counts| counts.rule == "keys").unwrap();
    assert_eq!(keys.denied_for("blocked"), 1);
    // A shadow reports it, and lets everything through.
    let shadow = Rule::new("trial", Quota::none())
        .shadow()
        .by(constant("all"));
    let app = behind(tollgate_tests::app::layer([
        shadow,
        per_minute("all", 5).by(constant("all")),
    ]));
    let fine = send(&app, "/").await;
    assert_eq!(fine.status(), 200);
    assert_eq!(field(&fine, "ratelimit"), r#""all";r=4;t=60"#);
}

#[tokio::test]
async fn a_rule_has_its_own_status_also_in_grpc_and_for_a_handler() {
    for (status, code, message) in [
        (None, "7", "blocked"),
        (Some(StatusCode::UNAUTHORIZED), "16", "blocked"),
        (Some(StatusCode::TOO_MANY_REQUESTS), "8", "blocked"),
    ] {
        let rule = blocked(Quota::none());
        let rule = status.map_or(rule.clone(), |status| rule.blocked_status(status));
        let app = behind(layer([rule]));
        let denied = send(&app, of("mallory", "/")).await;
        let expected = status.unwrap_or(StatusCode::FORBIDDEN);
        assert_eq!(denied.status(), expected);
        assert_eq!(field(&denied, "retry-after"), "");
        let mut call = of("mallory", "/weather.v1.Weather/Current");
        let grpc = "application/grpc".parse().expect("a value");
        *call.method_mut() = http::Method::POST;
        call.headers_mut().insert("content-type", grpc);
        let denied = send(&app, call).await;
        assert_eq!(denied.status(), 200);
        assert_eq!(field(&denied, "grpc-status"), code);
        assert_eq!(field(&denied, "grpc-message"), message);
        assert_eq!(field(&denied, "grpc-retry-pushback-ms"), "-1");
        assert_ne!(field(&denied, "grpc-status-details-bin"), "");
    }
    let rule = Rule::new("accounts", Quota::none()).by_handler();
    let handler = |admission: Admission| async move {
        let _ = admission
            .acquire("accounts", &tollgate::Key::of("ann"))
            .await?;
        Ok::<_, Denied>(())
    };
    let app = axum::Router::new()
        .route("/", axum::routing::get(handler))
        .layer(layer([rule]));
    assert_eq!(send(&app, "/").await.status(), 403);
    let wrong = blocked(Quota::none()).blocked_status(StatusCode::OK);
    let error = RateLimitLayer::new(MemoryStore::new(), [wrong]).unwrap_err();
    assert!(
        error.to_string().contains("take 401, 403 or 429"),
        "{error}"
    );
}

#[tokio::test]
async fn a_blocked_client_is_not_looked_up() {
    let look_ups = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&look_ups);
    let tenant = look_up(move |_| {
        let counted = Arc::clone(&counted);
        async move {
            counted.fetch_add(1, Ordering::Relaxed);
            Some("acme")
        }
    });
    let tenant = per_minute("tenants", 5).by(tenant);
    let reject = Missing::Reject(StatusCode::UNAUTHORIZED);
    let app = behind(layer([tenant.when_missing(reject), blocked(Quota::none())]));
    assert_eq!(send(&app, of("mallory", "/")).await.status(), 403);
    assert_eq!(look_ups.load(Ordering::Relaxed), 0);
    assert_eq!(send(&app, of("ann", "/")).await.status(), 200);
    assert_eq!(look_ups.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_caller_sees_that_it_is_blocked_and_until_when() {
    let closed = Rule::new("closed", Quota::none()).by(constant("all"));
    let rules = [
        blocked(for_an_hour()),
        closed.when(|head| head.uri.path() == "/closed"),
    ];
    let (store, _) = still();
    let layer = RateLimitLayer::new(store, rules).unwrap();
    let endpoint = LimitsEndpoint::new([&layer], header("x-api-key")).unwrap();
    let app = behind(layer).route("/limits", endpoint.route());
    let shown: serde_json::Value =
        serde_json::from_str(&text(send(&app, of("mallory", "/limits")).await).await).unwrap();
    assert_eq!(shown["resources"].as_object().unwrap().len(), 1, "{shown}");
    let keys = &shown["resources"]["keys"];
    assert_eq!(keys["blocked"], true);
    assert_eq!((&keys["limit"], &keys["remaining"]), (&json!(0), &json!(0)));
    assert!(keys["reset"].is_u64());
}

#[tokio::test]
async fn a_list_denies_keys_and_whole_addresses_and_lets_partners_pass() {
    let [revoked, abusive, partners] = ["revoked", "abusive", "partners"].map(KeyList::new);
    let behind_proxy = || client_ip().trusted_proxies(["192.0.2.1"]).x_forwarded_for();
    let tenant = (header("x-api-key"), constant("eu"));
    let app = behind(layer([
        Rule::new("revoked", Quota::none())
            .by(header("x-api-key"))
            .when_listed(&revoked)
            .blocked_status(StatusCode::UNAUTHORIZED),
        Rule::new("abusive", Quota::none())
            .by(behind_proxy())
            .when_listed(&abusive),
        // A key of two parts is in no list.
        Rule::new("tenants", Quota::none())
            .by(tenant)
            .when_listed(&revoked),
        per_minute("api", 1)
            .by(constant("all"))
            .exempt(in_list(behind_proxy(), &partners)),
    ]));
    let from = |address: &str, key: &str| {
        let request = get("/").header("x-forwarded-for", address);
        let request = request.header("x-api-key", key);
        request.body(Body::empty()).expect("a request")
    };
    let all = async || {
        let mut statuses = Vec::new();
        for (address, key) in [
            ("198.51.100.7", "acme"),
            ("2001:db8::7", "ok"),
            // Of the same /64.
            ("2001:db8::8", "ok"),
            ("203.0.113.9", "ok"),
            ("203.0.113.9", "ok"),
        ] {
            statuses.push(send(&app, from(address, key)).await.status().as_u16());
        }
        statuses
    };
    revoked.set(["acme", "# gone: beta"]).unwrap();
    abusive.set(["2001:db8::7"]).unwrap();
    partners.set(["203.0.113.0/24"]).unwrap();
    assert_eq!(all().await, [401, 403, 200, 200, 200]);
    let twice = get("/")
        .header("x-api-key", "acme")
        .header("x-api-key", "ok");
    assert_eq!(send(&app, twice).await.status(), 400);
    // The one unit of the others is gone.
    revoked.set(["acme until 2001-01-01T00:00Z"]).unwrap();
    abusive
        .set(["203.0.113.9 until 2999-01-01T00:00Z  # by hand"])
        .unwrap();
    assert_eq!(all().await, [429, 429, 429, 403, 403]);
    // A wrong line changes nothing.
    for (line, words) in [
        ("203.0.113.5/24", "take \"203.0.113.0/24\" for the network"),
        ("0.0.0.0/0", "names all addresses"),
        ("203.0.113.0/33", "is not a network"),
        (
            "203.0.113.0/24 until tomorrow",
            "write it as 2026-12-24T00:00Z",
        ),
    ] {
        let error = abusive
            .set(["192.0.2.9", "", line])
            .unwrap_err()
            .to_string();
        assert!(error.contains("line 3") && error.contains(words), "{error}");
    }
    assert_eq!(all().await, [429, 429, 429, 403, 403]);
}
