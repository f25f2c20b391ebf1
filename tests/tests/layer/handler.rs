//! What a handler can read and ask.

use axum::{Extension, Router, response::IntoResponse, routing};
use http::{Response, StatusCode};
use tollgate::{
    Admission, Decision, Denied, HOUR, Key, Missing, Quota, RateLimitLayer, Rejection, RequestRule,
    Rule, SECOND, decision::Reason, header::HeaderStyle, key::header,
};
use tollgate_tests::{
    app::{all, behind, field, get, layer, per_minute, send, text},
    events::Events,
};
use tower::ServiceExt;
use tracing::Level;

/// A rule for all clients, and one that handlers check.
fn two() -> [RequestRule; 2] {
    [
        all(per_minute("all", 9)),
        per_minute("per-account", 2).by_handler(),
    ]
}

fn attached() -> RateLimitLayer {
    layer(two()).attach_decision()
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
        .layer(attached());
    assert_eq!(text(send(&app, "/extractor").await).await, "8 of 9");
    assert_eq!(text(send(&app, "/extension").await).await, "7 of 9");
    assert_eq!(text(send(&app, "/optional").await).await, "6 of 9");
}

#[tokio::test]
async fn without_attach_the_answer_names_it() {
    let layer = layer([all(per_minute("all", 9))]);
    let app = Router::new()
        .route("/", routing::get(|_: Admission| async {}))
        .route(
            "/optional",
            routing::get(
                |admission: Option<Admission>| async move { admission.is_none().to_string() },
            ),
        )
        .layer(layer);
    let answer = send(&app, "/").await;
    assert_eq!(answer.status(), 500);
    let message = text(answer).await;
    assert!(message.contains(".attach_decision()"), "{message}");
    assert_eq!(text(send(&app, "/optional").await).await, "true");
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
    let layer = attached()
        .rejection(rejection())
        .denied_status(StatusCode::FORBIDDEN);
    let app = logins(layer.unwrap());
    for _ in 0..2 {
        send(&app, "/ann").await;
    }
    let denied = send(&app, "/ann").await;
    assert_eq!(denied.status(), 403);
    assert_eq!(text(denied).await, "no, /ann");
}

#[tokio::test]
async fn a_denial_lasts_as_long_as_what_the_request_has_used_up_before_it() {
    let hour = || Rule::new("hour", Quota::fixed_window(2, HOUR));
    let minute = || per_minute("minute", 1);
    let inside = |rule: RequestRule| layer([rule, minute().by_handler()]);
    let handler = |layer: RateLimitLayer, names: &'static [&'static str]| {
        let handler = move |admission: Admission| async move {
            for name in names {
                let _ = admission.acquire(name, &Key::of("ann")).await?;
            }
            Ok::<_, Denied>(())
        };
        Router::new().route("/", routing::get(handler).layer(layer))
    };
    let nested = |outer: RequestRule| behind(layer([all(minute())])).layer(layer([outer]));
    let failures = || all(hour()).count_if(|it| it.status() == StatusCode::UNAUTHORIZED);
    let hidden = behind(layer([all(minute())]).hide_quota());
    let with_id = || all(hour()).idempotent(header("x-id"), HOUR);
    let slots = all(Rule::new("slots", Quota::concurrent(1)));
    let queue = all(Rule::new("queue", Quota::gcra(2, HOUR)).wait(HOUR));
    for (app, seconds, in_body) in [
        (handler(inside(all(hour())), &["minute"]), 3_600, 3_600),
        (
            handler(inside(all(hour())).hide_quota(), &["minute"]),
            3_600,
            3_600,
        ),
        (
            handler(inside(hour().by_handler()), &["hour", "minute"]),
            3_600,
            3_600,
        ),
        (nested(all(hour())), 3_600, 60),
        (
            hidden.layer(layer([all(hour())]).headers(HeaderStyle::NONE).unwrap()),
            3_600,
            60,
        ),
        // What goes back, and what lets the same request pass.
        (handler(inside(failures()), &["minute"]), 60, 60),
        (nested(failures()), 60, 60),
        (nested(all(hour().shadow())), 60, 60),
        (nested(with_id()), 60, 60),
        (nested(slots), 60, 60),
        (nested(queue), 60, 60),
    ] {
        assert_eq!(send(&app, get("/").header("x-id", "1")).await.status(), 200);
        let denied = send(&app, get("/").header("x-id", "2")).await;
        assert_eq!(field(&denied, "retry-after"), seconds.to_string());
        let text = text(denied).await;
        let body = format!("\"retry_after_ms\":{in_body}000}}");
        assert!(text.ends_with(&body), "{text}");
    }
}

#[tokio::test]
async fn a_hidden_quota_stays_hidden_below_an_outer_layer() {
    let outer = layer([all(per_minute("outer", 99))]);
    let by_layer = behind(layer([all(per_minute("inner", 2))]).hide_quota());
    let refused = per_minute("inner", 2).by(header("x-api-key"));
    let refused = refused.when_missing(Missing::Reject(StatusCode::UNAUTHORIZED));
    let refused = behind(layer([refused]).hide_quota());
    let by_handler = logins(attached().hide_quota());
    // A response that a handler has made of the denial, without anything of the layer's.
    let in_own_words = |admission: Admission| async move {
        match admission.acquire("per-account", &Key::of(["ann"])).await {
            Ok(_) => StatusCode::OK,
            Err(_) => StatusCode::TOO_MANY_REQUESTS,
        }
    };
    let layer = attached().hide_quota();
    let in_own_words = Router::new().route("/{account}", routing::get(in_own_words).layer(layer));
    for (app, passes) in [
        (by_layer, true),
        (by_handler, true),
        (in_own_words, true),
        (refused, false),
    ] {
        let app = app.layer(outer.clone());
        for _ in 0..2 * u8::from(passes) {
            let answer = send(&app, "/ann").await;
            assert!(field(&answer, "ratelimit").starts_with("\"outer\""));
        }
        let denied = send(&app, "/ann").await;
        assert!(denied.status().is_client_error());
        assert_eq!(field(&denied, "ratelimit"), "");
        assert_eq!(field(&denied, "ratelimit-policy"), "");
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
    let app = Router::new().route("/", routing::get(handler).layer(attached()));
    let answer = send(&app, "/").await;
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
        let app = Router::new().route("/", routing::get(handler).layer(attached()));
        let answer = send(&app, "/").await;
        assert_eq!(answer.status(), 500);
        events.one(Level::ERROR, &[name, "per-account", "innermost layer"]);
    }
}

#[tokio::test]
async fn a_handlers_ticket_has_a_cost_and_is_settled_to_what_was_used() {
    let rules = [
        per_minute("tokens", 1_000).unit("tokens").by_handler(),
        per_minute("words", 10).by_handler(),
    ];
    let handler = |admission: Admission, body: String| async move {
        let key = Key::of("ann");
        if body == "words" {
            let words = admission.acquire_cost_ticket("words", 20, &key);
            return words.await.map(drop);
        }
        let max_tokens = body.parse().expect("a number");
        let ticket = admission
            .acquire_cost_ticket("tokens", max_tokens, &key)
            .await?;
        ticket.settle(100);
        Ok::<_, Denied>(())
    };
    let app = Router::new().route("/", routing::post(handler).layer(layer(rules)));
    let ask = async |tokens: &str| {
        let request = http::Request::post("/").body(axum::body::Body::from(tokens.to_owned()));
        app.clone().oneshot(request.unwrap()).await.unwrap()
    };
    for _ in 0..7 {
        assert_eq!(ask("400").await.status(), 200);
    }
    let denied = ask("400").await;
    assert_eq!(denied.status(), 429);
    assert!(text(denied).await.contains("allows 1000 tokens per 60 s"));
    assert!(
        text(ask("words").await)
            .await
            .contains("ever allows, which is 10 units.")
    );
}

#[tokio::test]
async fn a_denial_carries_its_decision_for_the_layers_around() {
    let layer = layer([all(per_minute("one", 1))]);
    let (bare, app) = (behind(layer.clone()), behind(layer.attach_decision()));
    let allowed = send(&app, "/").await;
    assert!(allowed.extensions().get::<Decision>().is_none());
    // Only if the layer attaches decisions: it costs allocations.
    let untold = send(&bare, "/").await;
    assert!(untold.extensions().get::<Decision>().is_none());
    let denied = send(&app, "/").await;
    let decision = denied.extensions().get::<Decision>().unwrap();
    assert_eq!(decision.reason(), Some(Reason::Quota));
    assert_eq!(decision.retry_after(), Some(60 * SECOND));
}

#[tokio::test]
async fn a_request_that_no_rule_concerns_has_an_admission_without_verdicts() {
    let rules = [per_minute("per-key", 1)
        .by(header("x-api-key"))
        .when_missing(Missing::Skip)];
    let layer = layer(rules).attach_decision();
    let handler = |admission: Admission| async move {
        admission.ticket().cancel();
        admission.verdicts().count().to_string().into_response()
    };
    let app = Router::new().route("/", routing::get(handler).layer(layer));
    assert_eq!(text(send(&app, "/").await).await, "0");
}
