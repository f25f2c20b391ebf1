//! Rules that are replaced while a layer serves requests.

use std::{convert::Infallible, sync::Arc};

use http::{HeaderName, Request, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::Notify;
use tollgate::{
    Admission, Key, Limiter, MINUTE, MemoryStore, OnStoreError, Quota, RateLimitLayer, Rejection,
    RequestRule, Rule, RulesHandle, SECOND, error::RuleErrorKind, header::HeaderStyle,
    key::constant, message::MessageLimitLayer,
};
use tollgate_tests::{
    app::{get, left, still},
    events::Events,
};
use tower::{Layer, Service, ServiceExt, service_fn};
use tracing::Level;

type Body = http_body_util::Empty<bytes::Bytes>;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMITS: HeaderName = HeaderName::from_static("ratelimit");

fn window(limit: u64) -> Quota {
    Quota::fixed_window(limit, MINUTE)
}

fn rule(name: &str, limit: u64) -> RequestRule {
    Rule::new(name, window(limit)).by(constant("all"))
}

fn request() -> Request<Body> {
    get("/").body(Body::new()).expect("a request")
}

async fn ok(_: Request<Body>) -> Result<Response<Body>, Infallible> {
    Ok(Response::new(Body::new()))
}

/// The status of a response, the policies and the limits in its header, and its body.
async fn send<S, B>(service: &S) -> (StatusCode, String, String, String)
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone,
    B: http_body::Body<Error: std::fmt::Debug>,
{
    let Ok(response) = service.clone().oneshot(request()).await;
    let (head, body) = response.into_parts();
    let field = |name| {
        let value = head.headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let body = body.collect().await.expect("a body").to_bytes();
    let body = String::from_utf8_lossy(&body).into_owned();
    (head.status, field(POLICY), field(LIMITS), body)
}

#[tokio::test]
async fn a_replacement_is_in_force_in_all_services_at_once() {
    let layer = RateLimitLayer::new(still().0, [rule("api", 3)]).expect("valid");
    let handle = layer.handle();
    let (one, other) = (
        layer.layer(service_fn(ok)),
        layer.clone().layer(service_fn(ok)),
    );
    drop(layer);
    assert_eq!(send(&one).await.2, "\"api\";r=2;t=60");
    handle.replace([rule("api", 5)]).expect("valid");
    assert_eq!(send(&other).await.2, "\"api\";r=3;t=60");
    let (status, policy, limits, _) = send(&one).await;
    assert_eq!(
        (status, &*policy, &*limits),
        (StatusCode::OK, "\"api\";q=5;w=60", "\"api\";r=2;t=60")
    );
    handle
        .replace([rule("api", 2), rule("web", 9)])
        .expect("valid");
    let (status, policy, _, body) = send(&other).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(policy, "\"api\";q=2;w=60, \"web\";q=9;w=60");
    assert!(body.contains("\"api\""), "{body}");
    handle.replace([rule("web", 9)]).expect("valid");
    assert_eq!(send(&one).await.2, "\"web\";r=8;t=60");
}

#[tokio::test]
async fn a_request_in_flight_ends_by_the_rules_that_it_began_with() {
    let (arrived, leave) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (here, there) = (Arc::clone(&arrived), Arc::clone(&leave));
    let slow = service_fn(move |request: Request<Body>| {
        let (here, there) = (Arc::clone(&here), Arc::clone(&there));
        async move {
            here.notify_one();
            there.notified().await;
            let fails = request.headers().contains_key("x-fails");
            if fails {
                Err("it fails")
            } else {
                Ok(Response::new(Body::new()))
            }
        }
    });
    let layer = RateLimitLayer::new(still().0, [rule("api", 10)]).expect("valid");
    let service = layer.layer(slow);
    let left = || left(&layer, "api", get("/"));
    let send = |request| tokio::spawn(service.clone().oneshot(request));
    let first = send(request());
    arrived.notified().await;
    let mut failing = request();
    failing
        .headers_mut()
        .insert("x-fails", http::HeaderValue::from_static("1"));
    let second = send(failing);
    arrived.notified().await;
    assert_eq!(left(), 8);

    layer
        .handle()
        .replace([rule("first", 7), rule("api", 20)])
        .expect("valid");
    assert_eq!(left(), 18);
    leave.notify_one();
    let response = first.await.expect("no panic").expect("it succeeds");
    assert_eq!(response.headers()[POLICY], "\"api\";q=10;w=60");
    assert_eq!(response.headers()[LIMITS], "\"api\";r=9;t=60");
    leave.notify_one();
    // It is refunded to the budget as it is now.
    assert!(second.await.expect("no panic").is_err());
    assert_eq!(left(), 19);
}

#[tokio::test]
async fn the_settings_of_a_layer_outlive_its_rules() {
    let plain = RateLimitLayer::new(still().0, [rule("api", 1)]).expect("valid");
    let handle = plain.handle();
    // Two layers that respond in two ways have the same rules.
    let text = plain
        .clone()
        .rejection(Rejection::text())
        .denied_status(StatusCode::SERVICE_UNAVAILABLE)
        .and_then(|layer| layer.headers(HeaderStyle::DRAFT_7))
        .expect("valid");
    let hidden = plain.clone().hide_quota().attach_decision();
    let (text, hidden) = (
        text.layer(service_fn(ok)),
        hidden.layer(service_fn(attached)),
    );
    drop(plain);
    handle
        .replace([rule("api", 3), rule("web", 2)])
        .expect("valid");
    assert_eq!(
        send(&hidden).await,
        (
            StatusCode::ACCEPTED,
            String::new(),
            String::new(),
            String::new()
        )
    );
    let (status, policy, limits, _) = send(&text).await;
    assert_eq!((status, &*policy), (StatusCode::OK, "3;w=60, 2;w=60"));
    assert!(limits.starts_with("limit=2, remaining=0"), "{limits}");
    let (status, _, limits, body) = send(&text).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(limits.starts_with("limit=2, remaining=0"), "{limits}");
    assert!(!body.contains('{') && !body.is_empty(), "{body}");
    let (status, policy, limits, body) = send(&hidden).await;
    assert_eq!(
        (status, policy, limits),
        (StatusCode::TOO_MANY_REQUESTS, String::new(), String::new())
    );
    assert!(!body.contains("web"), "{body}");
}

/// Says by its status whether the decision is attached.
async fn attached(request: Request<Body>) -> Result<Response<Body>, Infallible> {
    let mut response = Response::new(Body::new());
    if request.extensions().get::<Admission>().is_some() {
        *response.status_mut() = StatusCode::ACCEPTED;
    }
    Ok(response)
}

#[tokio::test]
async fn rules_for_handlers_come_and_go() {
    let in_handler = || Rule::new("log-in", window(1)).by_handler();
    let layer = RateLimitLayer::new(still().0, [rule("api", 9)]).expect("valid");
    let service = layer.layer(service_fn(attached));
    assert_eq!(send(&service).await.0, StatusCode::OK);
    layer
        .handle()
        .replace([rule("api", 9), in_handler()])
        .expect("valid");
    assert_eq!(send(&service).await.0, StatusCode::ACCEPTED);
    layer.handle().replace([rule("api", 9)]).expect("valid");
    assert_eq!(send(&service).await.0, StatusCode::OK);
}

#[tokio::test]
async fn what_is_refused_changes_nothing() {
    let store = still().0;
    let layer = RateLimitLayer::new(store.clone(), [rule("api", 9)]).expect("valid");
    let other = RateLimitLayer::new(store.clone(), [rule("web", 9)]).expect("valid");
    let service = layer.layer(service_fn(ok));
    let without_plan = Rule::new("api", window(5)).by(constant("all"));
    let without_plan = without_plan.plan_by(|_| Some("gold"));
    let none: [RequestRule; 0] = [];
    for (refused, kind) in [
        (
            layer.handle().replace([rule("api", 0)]),
            RuleErrorKind::Quota,
        ),
        (layer.handle().replace([without_plan]), RuleErrorKind::Plan),
        (
            layer.handle().replace([rule("api", 5), rule("web", 8)]),
            RuleErrorKind::Conflict,
        ),
        (layer.handle().replace(none), RuleErrorKind::RuleSet),
    ] {
        let error = refused.expect_err("it is wrong");
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(send(&service).await.1, "\"api\";q=9;w=60");
    }
    let both = |api, web| {
        let (layer, other) = (layer.handle(), other.handle());
        RulesHandle::replace_all([(&layer, [rule("api", api)]), (&other, [rule("web", web)])])
    };
    // The second is wrong, and the first stays too.
    assert!(both(5, 0).is_err());
    assert_eq!(send(&service).await.1, "\"api\";q=9;w=60");
    let changes = both(5, 6).expect("valid");
    assert!(changes[1][0].to_string().starts_with("web: "));
    assert_eq!(send(&service).await.1, "\"api\";q=5;w=60");
    assert_eq!(other.limiter().rules().rules()[0].quota().limit(), 6);
    let twice = [
        (&layer.handle(), [rule("api", 1)]),
        (&layer.handle(), [rule("web", 1)]),
    ];
    assert!(RulesHandle::replace_all(twice).is_err());
    let elsewhere = RateLimitLayer::new(MemoryStore::new(), [rule("api", 1)]).expect("valid");
    let apart = [
        (&layer.handle(), [rule("api", 1)]),
        (&elsewhere.handle(), [rule("api", 1)]),
    ];
    let error = RulesHandle::replace_all(apart).expect_err("two stores");
    assert_eq!(error.kind(), RuleErrorKind::Conflict, "{error}");
}

#[test]
fn a_handle_holds_no_name() {
    let store = still().0;
    let layer = RateLimitLayer::new(store.clone(), [rule("api", 1)]).expect("valid");
    let handle = layer.handle();
    assert!(handle.limiter().is_some());
    drop(layer);
    assert!(Limiter::new(store, [Rule::new("api", window(2))]).is_ok());
    let error = handle
        .replace([rule("api", 3)])
        .expect_err("there is no layer");
    assert!(error.to_string().contains("gone"), "{error}");
    assert!(handle.limiter().is_none());
}

#[test]
fn message_limits_are_replaced_and_stay_limits_on_messages() {
    let layer = MessageLimitLayer::new(still().0, [rule("messages", 9)]).expect("valid");
    let handle = layer.handle();
    let in_handler = Rule::new("messages", window(5)).by_handler();
    let error = handle
        .replace([in_handler])
        .expect_err("no handler sees them");
    assert_eq!(error.kind(), RuleErrorKind::Key);
    handle.replace([rule("messages", 5)]).expect("valid");
    let decision = layer.limiter().try_acquire("messages", &Key::shared());
    assert_eq!(decision.expect("in memory").verdicts()[0].remaining(), 4);
}

#[tokio::test]
async fn what_was_reported_of_a_layer_is_not_reported_again_of_its_next_rules() {
    let layer = RateLimitLayer::new(still().0, [rule("api", 80)]).expect("valid");
    let asks = async |request: Request<Body>| {
        let admission = request.extensions().get::<Admission>().cloned();
        let admission = admission.expect("it is attached");
        assert!(admission.acquire("misspelt", &Key::shared()).await.is_err());
        ok(request).await
    };
    let layer = layer.attach_decision();
    let service = layer.layer(service_fn(asks));
    let events = Events::listen();
    for limit in 70..73 {
        send(&service).await;
        // A name that is wrong.
        assert_eq!(events.at(Level::ERROR).len(), 1, "{limit}");
        layer.handle().replace([rule("api", limit)]).expect("valid");
    }
}

#[test]
fn a_preview_leaves_a_rule_of_its_name_alone() {
    let rules = [rule("image", 60), rule("image-preview", 1)];
    let layer = RateLimitLayer::new(still().0, rules).expect("valid");
    let handle = layer.handle();
    let error = handle
        .preview("image", window(30))
        .expect_err("the name is taken");
    assert!(error.to_string().contains("\"image-preview\""), "{error}");
    assert!(!handle.end_preview("image").expect("there is none"));
    let limiter = layer.limiter();
    let rules = limiter.rules();
    assert!(rules.rules().len() == 2 && rules.all_enforced());
}

#[test]
fn a_preview_has_no_answers_of_its_own_and_a_rule_for_handlers_has_none() {
    let searches = Rule::new("searches", window(60)).threshold("many", window(30));
    let [long, longer] = [57, 64].map(|letters| "w".repeat(letters));
    let writes = Rule::new(&*long, window(60)).on_store_error(OnStoreError::LocalShare);
    let rules = [
        searches
            .by(constant("all"))
            .challenge("many", |_, _| None)
            .slow_denials(SECOND, 1),
        writes
            .by(constant("all"))
            .on_store_error_when(|_| true, OnStoreError::LocalShare),
        Rule::new(&*longer, window(5)).by(constant("all")),
        Rule::new("log-in", window(5)).by_handler(),
    ];
    let layer = RateLimitLayer::new(still().0, rules).expect("valid");
    let preview = |name: &str| layer.handle().preview(name, window(9)).expect("valid");
    assert_eq!(preview("searches"), "searches-preview");
    assert_ne!(preview(&long), preview(&longer));
    let error = layer.handle().preview("log-in", window(1));
    let error = error.expect_err("no handler checks it");
    assert_eq!(error.kind(), RuleErrorKind::Key, "{error}");
    assert!(error.to_string().contains("by_handler"), "{error}");
}
