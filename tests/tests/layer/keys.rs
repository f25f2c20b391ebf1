//! Requests without a key, and keys that are looked up.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use axum::{Router, body::Body, routing};
use http::{Request, Response, StatusCode, request};
use tollgate::{
    Decision, MINUTE, Missing, Quota, RateLimitLayer, Reason, RequestRule, Rule,
    key::{KeyExtractor, KeyExtractorExt, client_ip, constant, header, look_up},
};
use tollgate_tests::{events::Events, server::Server, slow::SlowStore};
use tower::ServiceExt;
use tracing::Level;

use crate::{get, still};

const UNAUTHORIZED: Missing = Missing::Reject(StatusCode::UNAUTHORIZED);

fn one_each(key: impl KeyExtractor) -> RequestRule {
    Rule::new("one-each", Quota::fixed_window(1, MINUTE)).by(key)
}

fn app(rules: impl IntoIterator<Item = RequestRule>) -> Router {
    let layer = RateLimitLayer::new(still().0, rules).expect("valid rules");
    Router::new().fallback(|| async {}).layer(layer)
}

async fn send(app: &Router, request: request::Builder) -> Response<Body> {
    let request = request.body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap()
}

async fn status(app: &Router, request: request::Builder) -> u16 {
    send(app, request).await.status().as_u16()
}

fn with_key(key: &str) -> request::Builder {
    get("/").header("x-api-key", key)
}

#[tokio::test]
async fn requests_without_a_key_share_one_bucket() {
    let app = app([one_each(header("x-api-key"))]);
    assert_eq!(status(&app, get("/")).await, 200);
    assert_eq!(status(&app, get("/")).await, 429);
    assert_eq!(status(&app, with_key("")).await, 429);
    assert_eq!(status(&app, with_key("k")).await, 200);
}

#[tokio::test]
async fn requests_without_a_key_are_skipped_where_a_rule_says_so() {
    let app = app([one_each(header("x-api-key")).when_missing(Missing::Skip)]);
    for _ in 0..3 {
        let answer = send(&app, get("/")).await;
        assert_eq!(answer.status(), 200);
        assert!(!answer.headers().contains_key("ratelimit"));
    }
    assert_eq!(status(&app, with_key("k")).await, 200);
    assert_eq!(status(&app, with_key("k")).await, 429);
}

#[tokio::test]
async fn a_key_that_is_sent_twice_does_not_switch_a_rule_off() {
    let app = app([one_each(header("x-api-key")).when_missing(Missing::Skip)]);
    let twice = || with_key("a").header("x-api-key", "b");
    assert_eq!(status(&app, twice()).await, 200);
    assert_eq!(status(&app, twice()).await, 429);
}

#[tokio::test]
async fn requests_without_a_key_are_rejected_with_the_status_of_the_rule() {
    let store = SlowStore::at_once(still().0);
    let rules = [
        Rule::new("nine", Quota::fixed_window(9, MINUTE)).by(constant("all")),
        one_each(header("x-api-key")).when_missing(UNAUTHORIZED),
    ];
    let layer = RateLimitLayer::new(store.clone(), rules).unwrap().attach();
    let app = Router::new().fallback(|| async {}).layer(layer);
    for _ in 0..3 {
        let answer = send(&app, get("/")).await;
        assert_eq!(answer.status(), 401);
        assert!(!answer.headers().contains_key("ratelimit"));
        assert!(!answer.headers().contains_key("retry-after"));
        let decision = answer.extensions().get::<Decision>().unwrap();
        assert_eq!(decision.reason(), Some(Reason::NoKey));
    }
    // Nobody was asked, so nothing of the other rule is gone.
    assert_eq!(store.calls(), 0);
    let answer = send(&app, with_key("k")).await;
    assert_eq!(
        answer.headers()["ratelimit"],
        r#""nine";r=8;t=60, "one-each";r=0;t=60"#
    );
}

#[tokio::test]
async fn without_addresses_the_policy_decides_and_one_event_names_the_call() {
    for (missing, expected) in [
        (Missing::Shared, [200, 429, 429]),
        (Missing::Skip, [200, 200, 200]),
        (
            Missing::Reject(StatusCode::INTERNAL_SERVER_ERROR),
            [500, 500, 500],
        ),
    ] {
        let events = Events::listen();
        let rule = one_each(client_ip()).when_missing(missing);
        let layer = RateLimitLayer::new(still().0, [rule]).unwrap();
        let app = Router::new().route("/", routing::get(|| async {}).layer(layer));
        let server = Server::start_without_addresses(app).await;
        for status in expected {
            assert_eq!(server.get("/").await.status, status, "{missing:?}");
        }
        let errors = events.at(Level::ERROR);
        assert_eq!(errors.len(), 1, "{errors:?}");
        for word in [
            "one-each",
            "into_make_service_with_connect_info::<SocketAddr>()",
        ] {
            assert!(errors[0].contains(word), "{errors:?} lacks {word}");
        }
    }
}

#[tokio::test]
async fn a_mistake_of_the_set_up_is_told_once_for_each_rule() {
    let events = Events::listen();
    let rules = ["first", "second"].map(|name| {
        let quota = Quota::fixed_window(9, MINUTE);
        Rule::new(name, quota).by(client_ip())
    });
    let app = app(rules);
    for _ in 0..3 {
        let request = Request::get("/");
        assert_eq!(status(&app, request).await, 200);
    }
    let errors = events.at(Level::ERROR);
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors[0].contains("first") && errors[1].contains("second"));
}

/// A directory that knows `acme.…`, and counts how often it is asked.
#[derive(Clone, Default)]
struct Directory(Arc<AtomicU64>);

impl Directory {
    fn tenant(&self) -> impl KeyExtractor + use<> {
        let asked = Arc::clone(&self.0);
        look_up(move |head| {
            let key = head.headers.get("x-api-key").cloned();
            let asked = Arc::clone(&asked);
            async move {
                asked.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                let key = key?;
                let (tenant, _) = key.to_str().ok()?.split_once('.')?;
                (tenant == "acme").then(|| tenant.to_owned())
            }
        })
    }
}

#[tokio::test]
async fn a_key_that_is_looked_up_counts() {
    let directory = Directory::default();
    let app = app([one_each(directory.tenant()).when_missing(UNAUTHORIZED)]);
    assert_eq!(status(&app, with_key("acme.1")).await, 200);
    assert_eq!(status(&app, with_key("acme.2")).await, 429);
    assert_eq!(status(&app, with_key("nobody.1")).await, 401);
    assert_eq!(status(&app, get("/")).await, 401);
    assert_eq!(directory.0.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn a_look_up_that_finds_nothing_is_a_missing_key() {
    let shared = app([one_each(Directory::default().tenant())]);
    assert_eq!(status(&shared, with_key("nobody.1")).await, 200);
    assert_eq!(status(&shared, with_key("nobody.2")).await, 429);
    assert_eq!(status(&shared, with_key("acme.1")).await, 200);
    let skipped = app([one_each(Directory::default().tenant()).when_missing(Missing::Skip)]);
    for _ in 0..3 {
        let answer = send(&skipped, with_key("nobody.1")).await;
        assert_eq!(answer.status(), 200);
        assert!(!answer.headers().contains_key("ratelimit"));
    }
}

#[tokio::test]
async fn a_skipped_look_up_leaves_the_other_rules_in_their_order() {
    let quota = |limit| Quota::fixed_window(limit, MINUTE);
    let skipped = |name, limit| {
        let rule = Rule::new(name, quota(limit)).by(Directory::default().tenant());
        rule.when_missing(Missing::Skip)
    };
    let app = app([
        skipped("a", 9),
        Rule::new("b", quota(8)).by(constant("all")),
        skipped("c", 7),
        Rule::new("d", quota(6)).by(Directory::default().tenant()),
    ]);
    let answer = send(&app, with_key("nobody.1")).await;
    assert_eq!(
        answer.headers()["ratelimit"],
        r#""b";r=7;t=60, "d";r=5;t=60"#
    );
    let answer = send(&app, with_key("acme.1")).await;
    assert_eq!(
        answer.headers()["ratelimit"],
        r#""a";r=8;t=60, "b";r=6;t=60, "c";r=6;t=60, "d";r=5;t=60"#
    );
}

#[tokio::test]
async fn a_look_up_keeps_the_cost_and_the_plan_of_its_rule() {
    let rule = Rule::new("units", Quota::fixed_window(3, MINUTE))
        .plan("gold", Quota::fixed_window(10, MINUTE))
        .by(Directory::default().tenant())
        .cost_by(|_| 4)
        .plan_by(|_| Some("gold"));
    let answer = send(&app([rule]), with_key("acme.1")).await;
    assert_eq!(answer.headers()["ratelimit"], r#""units";r=6;t=60"#);
}

#[tokio::test]
async fn a_look_up_can_be_part_of_a_tuple() {
    let app = app([one_each((
        header("x-route"),
        Directory::default().tenant(),
        constant("tail"),
    ))
    .when_missing(UNAUTHORIZED)]);
    let on = |route: &str, key: &str| with_key(key).header("x-route", route);
    assert_eq!(status(&app, on("a", "acme.1")).await, 200);
    assert_eq!(status(&app, on("a", "acme.2")).await, 429);
    assert_eq!(status(&app, on("b", "acme.1")).await, 200);
    assert_eq!(status(&app, on("b", "nobody.1")).await, 401);
    assert_eq!(status(&app, with_key("acme.1")).await, 401);
}

#[tokio::test]
async fn a_look_up_can_stand_on_either_side_of_or() {
    let tenant_first = app([
        one_each(Directory::default().tenant().or(header("x-device"))).when_missing(UNAUTHORIZED),
    ]);
    let header_first = app([
        one_each(header("x-device").or(Directory::default().tenant())).when_missing(UNAUTHORIZED),
    ]);
    for app in [&tenant_first, &header_first] {
        let device = |key: &str| with_key(key).header("x-device", "d-1");
        assert_eq!(status(app, with_key("acme.1")).await, 200);
        assert_eq!(status(app, with_key("acme.2")).await, 429);
        assert_eq!(status(app, device("nobody.1")).await, 200);
        assert_eq!(status(app, device("nobody.1")).await, 429);
        assert_eq!(status(app, with_key("nobody.1")).await, 401);
    }
}

#[tokio::test]
async fn who_is_rejected_is_not_looked_up() {
    let directory = Directory::default();
    let app = app([
        Rule::new("tenant", Quota::fixed_window(9, MINUTE)).by(directory.tenant()),
        one_each(header("x-device")).when_missing(UNAUTHORIZED),
    ]);
    assert_eq!(status(&app, with_key("acme.1")).await, 401);
    assert_eq!(directory.0.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_shadow_rejects_nobody_for_a_missing_key() {
    let rules = [
        Rule::new("nine", Quota::fixed_window(9, MINUTE)).by(constant("all")),
        Rule::new("shadow", Quota::fixed_window(1, MINUTE))
            .shadow()
            .by(header("x-api-key"))
            .when_missing(UNAUTHORIZED),
        Rule::new("looked-up", Quota::fixed_window(1, MINUTE))
            .shadow()
            .by(Directory::default().tenant())
            .when_missing(UNAUTHORIZED),
    ];
    let app = app(rules);
    for left in [8, 7] {
        let answer = send(&app, get("/")).await;
        assert_eq!(answer.status(), 200);
        let told = format!(r#""nine";r={left};t=60"#);
        assert_eq!(answer.headers()["ratelimit"], *told);
    }
}
