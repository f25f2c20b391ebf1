//! What a handler can read and ask.

use std::time::Duration;

use axum::{Extension, Router, body::Body, response::IntoResponse, routing};
use http::{Response, StatusCode};
use tollgate::{
    Admission, Decision, Denied, Key, MINUTE, Missing, OnStoreError, Quota, RateLimitLayer, Reason,
    Rejection, RequestRule, Rule, SECOND,
    key::{constant, header},
};
use tollgate_tests::{events::Events, server::Server, slow::SlowStore};
use tower::ServiceExt;
use tracing::Level;

use crate::{get, still};

fn per_minute(name: &'static str, limit: u64) -> Rule {
    Rule::new(name, Quota::fixed_window(limit, MINUTE))
}

/// A rule for everybody, and one that is left to handlers.
fn two() -> [RequestRule; 2] {
    [
        per_minute("all", 9).by(constant("all")),
        per_minute("per-account", 2).by_handler(),
    ]
}

fn layer(store: impl tollgate::Store) -> RateLimitLayer {
    RateLimitLayer::new(store, two())
        .expect("valid rules")
        .attach_decision()
}

/// Asks for the account that the path names.
async fn log_in(
    admission: Admission,
    axum::extract::Path(account): axum::extract::Path<String>,
) -> Result<&'static str, Denied> {
    let key = Key::of([&account]);
    let decision = admission.acquire("per-account", &key).await?;
    assert!(decision.is_allowed());
    Ok("welcome")
}

fn logins(layer: RateLimitLayer) -> Router {
    Router::new().route("/{account}", routing::any(log_in).layer(layer))
}

async fn ask(app: &Router, path: &str) -> Response<Body> {
    let request = get(path).body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap()
}

fn field<'a>(response: &'a Response<Body>, name: &str) -> &'a str {
    let value = response.headers().get(name);
    value.map_or("", |value| value.to_str().unwrap())
}

async fn text(response: Response<Body>) -> String {
    let bytes = axum::body::to_bytes(response.into_body(), 1 << 12).await;
    String::from_utf8(bytes.unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn a_handler_reads_the_decision_as_an_extractor_or_as_an_extension() {
    let name = |admission: &Admission| {
        let verdict = admission.verdict("all").expect("it was asked");
        assert!(admission.verdict("nothing").is_none());
        assert!(admission.decision().is_allowed());
        format!("{} of {}", verdict.remaining(), verdict.limit())
    };
    let app = Router::new()
        .route(
            "/extractor",
            routing::get(move |admission: Admission| async move { name(&admission) }),
        )
        .route(
            "/extension",
            routing::get(
                move |Extension(admission): Extension<Admission>| async move { name(&admission) },
            ),
        )
        .route(
            "/optional",
            routing::get(move |admission: Option<Admission>| async move {
                name(&admission.expect("attached"))
            }),
        )
        .layer(layer(still().0));
    assert_eq!(text(ask(&app, "/extractor").await).await, "8 of 9");
    assert_eq!(text(ask(&app, "/extension").await).await, "7 of 9");
    assert_eq!(text(ask(&app, "/optional").await).await, "6 of 9");
}

#[tokio::test]
async fn a_rule_that_is_left_to_handlers_attaches_by_itself() {
    let handler = |admission: Option<Admission>| async move {
        let admission = admission.expect("there is somebody to ask");
        let _ = admission.acquire("per-account", &Key::of(["ann"])).await?;
        Ok::<_, Denied>("welcome")
    };
    let layer = RateLimitLayer::new(still().0, two()).unwrap();
    let app = Router::new().route("/", routing::get(handler).layer(layer));
    for status in [200, 200, 429] {
        assert_eq!(ask(&app, "/").await.status(), status);
    }
}

#[tokio::test]
async fn a_handlers_own_ticket_refunds_its_units() {
    let handler = |admission: Admission, uri: http::Uri| async move {
        let attempt = admission
            .acquire_ticket("per-account", &Key::of(["ann"]))
            .await?;
        if uri.path() == "/right" {
            attempt.cancel();
        }
        Ok::<_, Denied>("")
    };
    let app = Router::new().fallback(handler).layer(layer(still().0));
    for (path, status) in [
        ("/right", 200),
        ("/wrong", 200),
        ("/right", 200),
        ("/wrong", 200),
        ("/right", 429),
    ] {
        assert_eq!(ask(&app, path).await.status(), status, "{path}");
    }
}

#[tokio::test]
async fn without_attach_the_answer_names_it() {
    let layer = RateLimitLayer::new(still().0, [per_minute("all", 9).by(constant("all"))]).unwrap();
    let app = Router::new()
        .route("/", routing::get(|_: Admission| async {}))
        .route(
            "/optional",
            routing::get(
                |admission: Option<Admission>| async move { admission.is_none().to_string() },
            ),
        )
        .layer(layer);
    let answer = ask(&app, "/").await;
    assert_eq!(answer.status(), 500);
    let message = text(answer).await;
    assert!(message.contains(".attach_decision()"), "{message}");
    assert_eq!(text(ask(&app, "/optional").await).await, "true");
}

#[tokio::test]
async fn of_two_layers_the_inner_ones_admission_is_seen() {
    let outer = RateLimitLayer::new(still().0, [per_minute("outer", 5).by(constant("all"))]);
    let app = Router::new()
        .route(
            "/",
            routing::get(|admission: Admission| async move {
                admission.verdict("all").is_some().to_string()
            }),
        )
        .layer(layer(still().0))
        .layer(outer.unwrap().attach_decision());
    assert_eq!(text(ask(&app, "/").await).await, "true");
}

#[tokio::test]
async fn quota_fields_include_the_checks_of_a_handler() {
    for store in [
        SlowStore::at_once(still().0),
        SlowStore::after(Duration::ZERO, still().0),
    ] {
        let app = logins(layer(store));
        let answer = ask(&app, "/ann").await;
        assert_eq!(answer.status(), 200);
        let reported: Vec<_> = field(&answer, "ratelimit").split(", ").collect();
        assert_eq!(reported, [r#""all";r=8;t=60"#, r#""per-account";r=1;t=60"#]);
    }
}

#[tokio::test]
async fn a_denial_of_a_handler_is_the_layers_rejection() {
    let app = logins(layer(still().0));
    ask(&app, "/ann").await;
    ask(&app, "/ann").await;
    let denied = ask(&app, "/ann").await;
    assert_eq!(denied.status(), 429);
    assert_eq!(field(&denied, "retry-after"), "60");
    assert_eq!(field(&denied, "content-type"), "application/problem+json");
    let reported: Vec<_> = field(&denied, "ratelimit").split(", ").collect();
    assert_eq!(reported, [r#""all";r=6;t=60"#, r#""per-account";r=0;t=60"#]);
    let decision = denied.extensions().get::<Decision>().expect("a decision");
    assert_eq!(decision.reason(), Some(Reason::Quota));
    assert!(text(denied).await.contains("per-account"));
    assert_eq!(ask(&app, "/bob").await.status(), 200);
}

#[tokio::test]
async fn a_denial_of_a_handler_looks_like_the_layers_own() {
    let rejection = || {
        Rejection::custom(|denial| {
            let mut response = Response::new(format!("no, {}", denial.head().uri).into());
            *response.status_mut() = denial.status();
            response
        })
    };
    let layer = layer(still().0).rejection(rejection());
    let layer = layer.denied_status(StatusCode::FORBIDDEN).unwrap();
    let app = logins(layer);
    for _ in 0..2 {
        ask(&app, "/ann").await;
    }
    let denied = ask(&app, "/ann").await;
    assert_eq!(denied.status(), 403);
    assert_eq!(text(denied).await, "no, /ann");
}

#[tokio::test]
async fn a_hidden_quota_stays_hidden_in_a_handlers_denial() {
    let app = logins(layer(still().0).hide_quota());
    for _ in 0..2 {
        assert_eq!(field(&ask(&app, "/ann").await, "ratelimit"), "");
    }
    let denied = ask(&app, "/ann").await;
    assert_eq!(denied.status(), 429);
    assert_eq!(field(&denied, "ratelimit"), "");
    assert_eq!(field(&denied, "ratelimit-policy"), "");
    assert_eq!(field(&denied, "retry-after"), "60");
    assert!(!text(denied).await.contains("per-account"));
}

#[tokio::test]
async fn a_hidden_quota_stays_hidden_below_an_outer_layer() {
    let outer = RateLimitLayer::new(still().0, [per_minute("outer", 99).by(constant("all"))]);
    let outer = outer.unwrap();
    let by_layer = RateLimitLayer::new(still().0, [per_minute("inner", 2).by(constant("all"))]);
    let by_layer = Router::new()
        .fallback(|| async {})
        .layer(by_layer.unwrap().hide_quota());
    let refused = per_minute("inner", 2).by(header("x-api-key"));
    let refused = refused.when_missing(Missing::Reject(StatusCode::UNAUTHORIZED));
    let refused = RateLimitLayer::new(still().0, [refused])
        .unwrap()
        .hide_quota();
    let refused = Router::new().fallback(|| async {}).layer(refused);
    let by_handler = logins(layer(still().0).hide_quota());
    // A response that a handler has made of the denial, without anything of the layer's.
    let in_own_words = |admission: Admission| async move {
        match admission.acquire("per-account", &Key::of(["ann"])).await {
            Ok(_) => StatusCode::OK,
            Err(_) => StatusCode::TOO_MANY_REQUESTS,
        }
    };
    let layer = layer(still().0).hide_quota();
    let in_own_words = Router::new().route("/{account}", routing::get(in_own_words).layer(layer));
    for (app, passes) in [
        (by_layer, true),
        (by_handler, true),
        (in_own_words, true),
        (refused, false),
    ] {
        let app = app.layer(outer.clone());
        for _ in 0..2 * u8::from(passes) {
            let answer = ask(&app, "/ann").await;
            assert!(field(&answer, "ratelimit").starts_with("\"outer\""));
        }
        let denied = ask(&app, "/ann").await;
        assert!(denied.status().is_client_error());
        assert_eq!(field(&denied, "ratelimit"), "");
        assert_eq!(field(&denied, "ratelimit-policy"), "");
    }
}

#[tokio::test]
async fn a_handlers_denial_of_head_has_no_body() {
    let server = Server::start(logins(layer(still().0))).await;
    for _ in 0..2 {
        server.get("/ann").await;
    }
    let answer = server.send("HEAD", "/ann", &[]).await;
    assert_eq!((answer.status, &*answer.body), (429, ""));
}

#[tokio::test]
async fn a_handlers_own_response_to_a_denial_has_quota_fields() {
    let handler = |admission: Admission| async move {
        let key = Key::of("ann");
        match admission.acquire("per-account", &key).await {
            Ok(_) => "all",
            Err(denied) => {
                assert!(!denied.decision().is_allowed());
                "less"
            }
        }
    };
    let app = Router::new().route("/", routing::get(handler).layer(layer(still().0)));
    for body in ["all", "all", "less"] {
        let answer = ask(&app, "/").await;
        assert_eq!(answer.status(), 200);
        assert!(field(&answer, "ratelimit").contains(r#""per-account";r="#));
        assert_eq!(text(answer).await, body);
    }
}

#[tokio::test]
async fn a_rule_checked_several_times_is_listed_once() {
    let handler = |admission: Admission| async move {
        for account in ["ann", "bob"] {
            for _ in 0..2 {
                let _ = admission.acquire("per-account", &Key::of([account])).await;
            }
        }
        // Denied, and then another one that is not.
        let denied = admission.acquire("per-account", &Key::of("ann")).await;
        assert!(denied.is_err());
        let allowed = admission.acquire("per-account", &Key::of("eve")).await;
        assert!(allowed.is_ok());
    };
    let app = Router::new().route("/", routing::get(handler).layer(layer(still().0)));
    let answer = ask(&app, "/").await;
    let reported: Vec<_> = field(&answer, "ratelimit").split(", ").collect();
    // A list that names a policy twice says nothing; the tightest of its answers counts.
    assert_eq!(reported, [r#""all";r=8;t=60"#, r#""per-account";r=0;t=60"#]);
}

#[tokio::test]
async fn a_name_that_is_not_left_to_handlers_is_a_500_and_an_event_with_those_that_are() {
    for name in ["per-acount", "all"] {
        let events = Events::listen();
        let handler = move |admission: Admission| async move {
            let _ = admission.acquire(name, &Key::of("ann")).await?;
            Ok::<_, Denied>("welcome")
        };
        let app = Router::new().route("/", routing::get(handler).layer(layer(still().0)));
        let answer = ask(&app, "/").await;
        assert_eq!(answer.status(), 500);
        let errors = events.at(Level::ERROR);
        assert_eq!(errors.len(), 1, "{errors:?}");
        for word in [name, "per-account"] {
            assert!(errors[0].contains(word), "{errors:?} lacks {word}");
        }
    }
}

#[tokio::test]
async fn a_handler_can_check_at_another_cost() {
    let rules = [per_minute("words", 10).cost(2).by_handler()];
    let layer = RateLimitLayer::new(still().0, rules)
        .unwrap()
        .attach_decision();
    let handler = |admission: Admission| async move {
        let key = Key::of("ann");
        let _ = admission.acquire("words", &key).await?;
        let _ = admission.acquire_cost("words", 0, &key).await?;
        let _ = admission.acquire_cost("words", 7, &key).await?;
        let denied = admission.acquire_cost("words", 2, &key).await;
        assert!(denied.is_err());
        let never = admission.acquire_cost("words", 11, &key).await;
        never.map(|_| ())
    };
    let app = Router::new().route("/", routing::get(handler).layer(layer));
    let denied = ask(&app, "/").await;
    assert_eq!(denied.status(), 429);
    assert_eq!(field(&denied, "retry-after"), "");
}

#[tokio::test]
async fn a_failing_store_answers_handlers_with_the_rules_own_answer() {
    let store = SlowStore::after(Duration::ZERO, still().0);
    let rules = [per_minute("per-account", 2)
        .on_store_error(OnStoreError::Deny)
        .by_handler()];
    let layer = RateLimitLayer::new(store.clone(), rules)
        .unwrap()
        .attach_decision();
    let app = logins(layer);
    assert_eq!(ask(&app, "/ann").await.status(), 200);
    store.fail(true);
    let denied = ask(&app, "/ann").await;
    assert_eq!(denied.status(), 503);
    assert_eq!(field(&denied, "ratelimit"), "");
}

#[tokio::test]
async fn a_ticket_settles_to_the_actual_cost_and_refunds_at_most_what_was_taken() {
    let rules = || {
        [Rule::new("units", Quota::gcra(100, MINUTE))
            .by(constant("all"))
            .cost_by(|_| 40)]
    };
    for (left, settle) in [
        (
            85,
            (|admission: Admission| admission.ticket().settle(15)) as fn(Admission),
        ),
        (50, |admission| admission.ticket().settle(50)),
        (70, |admission| admission.ticket().refund(10)),
        (100, |admission| admission.ticket().refund(4_000)),
        (100, |admission| admission.ticket().cancel()),
        (60, |admission| drop(admission.ticket())),
        (60, |admission| admission.ticket().cancel_on_drop().keep()),
        // Two of them, by a middleware and a handler, say: units are given back once.
        (70, |admission| {
            admission.ticket().refund(10);
            admission.clone().ticket().refund(10);
        }),
    ] {
        let layer = RateLimitLayer::new(still().0, rules())
            .unwrap()
            .attach_decision();
        let limiter = layer.limiter();
        let mut key = tollgate::KeyBuf::new();
        key.push(tollgate::PartKind::CONSTANT, "all");
        let check = limiter.check("units", &key.into()).unwrap().with_cost(0);
        let handler = move |admission: Admission| async move { settle(admission) };
        let app = Router::new().route("/", routing::get(handler).layer(layer));
        assert_eq!(ask(&app, "/").await.status(), 200);
        let peeked = limiter.peek(&[check]).ready().unwrap();
        assert_eq!(peeked.verdicts()[0].remaining(), left);
    }
}

#[tokio::test]
async fn a_denial_carries_its_decision_for_the_layers_around() {
    let layer = RateLimitLayer::new(still().0, [per_minute("one", 1).by(constant("all"))]);
    let layer = layer.unwrap();
    let bare = Router::new().fallback(|| async {}).layer(layer.clone());
    let app = Router::new()
        .fallback(|| async {})
        .layer(layer.attach_decision());
    let allowed = ask(&app, "/").await;
    assert!(allowed.extensions().get::<Decision>().is_none());
    // Only where somebody has asked for decisions: it costs allocations.
    assert!(
        ask(&bare, "/")
            .await
            .extensions()
            .get::<Decision>()
            .is_none()
    );
    let denied = ask(&app, "/").await;
    let decision = denied.extensions().get::<Decision>().unwrap();
    assert_eq!(decision.reason(), Some(Reason::Quota));
    assert_eq!(decision.retry_after(), Some(60 * SECOND));
}

#[tokio::test]
async fn a_denied_request_is_a_response_outside_of_axum_too() {
    let layer = RateLimitLayer::new(still().0, two())
        .unwrap()
        .attach_decision();
    let inner = tower::service_fn(|request: http::Request<String>| async move {
        let admission: &Admission = request.extensions().get().expect("attached");
        for _ in 0..2 {
            let _ = admission.acquire("per-account", &Key::of("ann")).await;
        }
        let denied = admission.acquire("per-account", &Key::of("ann")).await;
        let response: Response<bytes::Bytes> = denied.err().unwrap().into_response();
        Ok::<_, std::convert::Infallible>(response.map(http_body_util::Full::new))
    });
    let service = tower::Layer::layer(&layer, inner);
    let response = service
        .oneshot(http::Request::new(String::new()))
        .await
        .unwrap();
    assert_eq!(response.status(), 429);
}

#[tokio::test]
async fn a_request_that_no_rule_concerns_has_an_admission_without_verdicts() {
    let rules = [per_minute("per-key", 1)
        .by(header("x-api-key"))
        .when_missing(Missing::Skip)];
    let layer = RateLimitLayer::new(still().0, rules)
        .unwrap()
        .attach_decision();
    let handler = |admission: Admission| async move {
        admission.ticket().cancel();
        admission.verdicts().count().to_string().into_response()
    };
    let app = Router::new().route("/", routing::get(handler).layer(layer));
    assert_eq!(text(ask(&app, "/").await).await, "0");
}

#[test]
fn an_admission_does_not_show_keys() {
    let layer = layer(still().0);
    let shown = format!("{layer:?}");
    assert!(shown.contains("per-account"), "{shown}");
}
