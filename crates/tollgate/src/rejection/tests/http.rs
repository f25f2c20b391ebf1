//! The responses over HTTP as bytes.

use std::time::Duration;

use http::{
    StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};
use serde_json::{Value, json};
use tollgate_core::{Decision, Outcome, Quota, Reason, Retry, Rule, RuleSet, Verdict};

use super::scene::{SOON, Scene, TOO_MANY, denied};
use crate::{
    head::Head,
    key::NoKey,
    protocol::WireProtocol,
    rejection::{Denial, Rejection, Responses},
};

#[test]
fn a_problem_has_the_type_of_the_drafts() {
    let scene = Scene::new();
    let decision = scene.decide([denied(0, 0, SOON)]);
    let denial = scene.denial(&decision);
    let response = scene.respond(Rejection::default(), &denial);
    assert_eq!(response.status(), TOO_MANY);
    assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
    assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
    assert_eq!(
        scene.body(Rejection::problem(), &denial),
        concat!(
            r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
            r#""title":"Quota exceeded","status":429,"#,
            r#""detail":"Policy \"per-min\" allows 100 requests per 60 s.","#,
            r#""violated-policies":["per-min"],"retry_after_ms":16001}"#
        )
    );
}

#[test]
fn a_problem_names_every_policy_that_is_exceeded_and_no_other() {
    let scene = Scene::new();
    let decision = scene.decide([
        denied(0, 1, SOON),
        denied(1, 0, Retry::after_micros(60_000_000)),
        denied(2, 0, SOON),
    ]);
    let denial = scene.denial(&decision);
    assert_eq!(
        denial.violated().collect::<Vec<_>>(),
        ["per-min", "per-day"]
    );
    assert_eq!(
        scene.value(Rejection::problem(), &denial),
        json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Quota exceeded",
            "status": 429,
            "detail": "Policy \"per-min\" allows 500 requests per 60 s. \
                       Policy \"per-day\" allows 1000 requests per 86400 s.",
            "violated-policies": ["per-min", "per-day"],
            "retry_after_ms": 60_000,
        })
    );
}

#[test]
fn a_cost_that_never_fits_has_no_retry_time() {
    let scene = Scene::new();
    let decision = scene.decide([denied(0, 0, Retry::Never), denied(1, 0, SOON)]);
    let denial = scene.denial(&decision);
    assert_eq!(
        (denial.reason(), denial.retry_after()),
        (Reason::Never, None)
    );
    let body = scene.value(Rejection::problem(), &denial);
    assert_eq!(body.get("retry_after_ms"), None);
    assert_eq!(
        body["detail"],
        "The request costs more than policy \"per-min\" ever allows, which is 100. \
         Policy \"per-day\" allows 1000 requests per 86400 s."
    );
    let body = scene.value(Rejection::json(), &denial);
    assert_eq!(
        (&body["error"], body.get("retry_after_ms")),
        (&json!("cost_too_high"), None)
    );
}

#[test]
fn a_store_failure_is_a_503_without_numbers() {
    let scene = Scene::new();
    let decision = scene.decide([Verdict::unanswered(0, 0, Outcome::Deny)]);
    let denial = scene.denial(&decision);
    assert_eq!(denial.reason(), Reason::StoreFailed);
    assert_eq!(scene.respond(Rejection::problem(), &denial).status(), 503);
    assert_eq!(
        scene.body(Rejection::problem(), &denial),
        r#"{"type":"about:blank","title":"Service Unavailable","status":503}"#
    );
    assert_eq!(
        scene.body(Rejection::json(), &denial),
        r#"{"error":"unavailable","message":"Service Unavailable"}"#
    );
    assert_eq!(
        scene.body(Rejection::text(), &denial),
        "Service Unavailable.\n"
    );
    assert_eq!(denial.violated().count(), 0);
}

#[test]
fn a_missing_key_has_the_status_of_its_rule() {
    let scene = Scene::new();
    let nothing = Decision::without_key(Reason::NoKey);
    let denial = scene.keyless(&nothing, StatusCode::UNAUTHORIZED, &NoKey::Absent);
    assert_eq!(
        (denial.retry(), denial.retry_after()),
        (Retry::Unknown, None)
    );
    assert_eq!(scene.respond(Rejection::problem(), &denial).status(), 401);
    assert_eq!(
        scene.body(Rejection::problem(), &denial),
        r#"{"type":"about:blank","title":"Unauthorized","status":401,"detail":"the request has no key"}"#
    );
    assert_eq!(
        scene.body(Rejection::json(), &denial),
        r#"{"error":"no_key","message":"the request has no key"}"#
    );
    let quiet = denial.hidden();
    assert_eq!(
        scene.body(Rejection::problem(), &quiet),
        r#"{"type":"about:blank","title":"Unauthorized","status":401}"#
    );
    assert_eq!(
        scene.body(Rejection::json(), &quiet),
        r#"{"error":"refused","message":"Unauthorized"}"#
    );
}

#[test]
fn a_client_learns_nothing_about_the_set_up() {
    let scene = Scene::new();
    let nothing = Decision::without_key(Reason::NoKey);
    let misconfigured = NoKey::Misconfigured("call into_make_service_with_connect_info".into());
    for (why, detail) in [
        (&misconfigured, "the service cannot tell who is asking"),
        (
            &NoKey::LookUpFailed,
            "the service cannot tell who is asking at present",
        ),
    ] {
        let status = StatusCode::from_u16(599).expect("a status");
        let denial = scene.keyless(&nothing, status, why);
        // A status without a name of its own.
        assert_eq!(
            scene.value(Rejection::problem(), &denial),
            json!({ "type": "about:blank", "title": "Refused", "status": 599, "detail": detail })
        );
        assert_eq!(scene.value(Rejection::json(), &denial)["message"], detail);
    }
}

#[test]
fn a_program_and_a_person_read_why_there_is_no_slot_and_no_wait() {
    let mut scene = Scene::new();
    let rule = Rule::new("exports", Quota::concurrent(1));
    scene.rules = RuleSet::new([rule]).expect("a valid rule");
    let at_once = "Policy \"exports\" allows 1 request at once.";
    let quoted = Rejection::json_template(r#"{"\"at\\": "{limit}", "why": "it is {reason}"}"#);
    let wrong = quoted.expect_err("words have quotes").to_string();
    assert!(wrong.contains(r#"{"reason": {reason}}"#), "{wrong}");
    let template = || {
        let template = Rejection::json_template(r#"{"why": {reason}, "per": {window}}"#);
        template.expect("a template")
    };
    for (reason, error, sentence) in [
        (Reason::Slots, "too_many_at_once", ""),
        (Reason::QueueFull, "too_many_waiting", " The queue is full."),
        (
            Reason::WaitExpired,
            "waited_too_long",
            " The time to wait is over.",
        ),
    ] {
        let decision = scene.decide([denied(0, 0, Retry::Unknown).of_slots(None)]);
        let decision = decision.denied_for(reason);
        let denial = scene.denial(&decision);
        let detail = format!("{at_once}{sentence}");
        assert_eq!(
            scene.value(template(), &denial),
            json!({ "why": reason.as_str(), "per": null })
        );
        assert_eq!(
            scene.value(Rejection::json(), &denial),
            json!({ "error": error, "message": detail, "rule": "exports" })
        );
        assert_eq!(
            scene.body(Rejection::text(), &denial),
            format!("Quota exceeded. {detail}\n")
        );
        let mut problem = json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Quota exceeded",
            "status": 429,
        });
        let quiet = scene.denial(&decision).hidden();
        assert_eq!(scene.value(Rejection::problem(), &quiet), problem);
        assert_eq!(
            scene.value(Rejection::json(), &quiet),
            json!({ "error": "rate_limit_exceeded", "message": "Quota exceeded" })
        );
        assert_eq!(
            scene.value(template(), &quiet),
            json!({ "why": "quota", "per": null })
        );
        problem["detail"] = detail.into();
        problem["violated-policies"] = json!(["exports"]);
        problem["reason"] = reason.as_str().into();
        assert_eq!(scene.value(Rejection::problem(), &denial), problem);
    }
}

#[test]
fn the_other_bodies_have_the_same_content() {
    let scene = Scene::new();
    let decision = scene.decide([denied(0, 0, SOON)]);
    let denial = scene.denial(&decision);
    assert_eq!(
        scene.body(Rejection::json(), &denial),
        concat!(
            r#"{"error":"rate_limit_exceeded","message":"Policy \"per-min\" allows 100 requests per 60 s.","#,
            r#""rule":"per-min","retry_after_ms":16001}"#
        )
    );
    assert_eq!(
        scene.body(Rejection::text(), &denial),
        "Quota exceeded. Policy \"per-min\" allows 100 requests per 60 s. Try again in 17 s.\n"
    );
    assert_eq!(scene.body(Rejection::empty(), &denial), "");
    let media_type = |rejection| {
        let response = scene.respond(rejection, &denial);
        response.headers().get(CONTENT_TYPE).cloned()
    };
    assert_eq!(
        media_type(Rejection::json()).expect("one"),
        "application/json"
    );
    assert_eq!(
        media_type(Rejection::text()).expect("one"),
        "text/plain; charset=utf-8"
    );
    assert_eq!(media_type(Rejection::empty()), None);
}

#[test]
fn what_one_denial_has_prepared_is_not_in_the_response_to_another() {
    let scene = Scene::new();
    let usual = scene.decide([denied(0, 0, SOON)]);
    let never = scene.decide([denied(0, 0, Retry::Never)]);
    let queue_full = scene
        .decide([denied(0, 0, SOON)])
        .denied_for(Reason::QueueFull);
    let gold = scene.decide([denied(0, 1, SOON)]);
    let (mut in_units, mut forbidden) = (scene.denial(&usual), scene.denial(&usual));
    in_units.in_units = true;
    forbidden.status = StatusCode::FORBIDDEN;
    let denials = [
        in_units,
        scene.denial(&usual).hidden(),
        scene.denial(&never),
        scene.denial(&queue_full),
        forbidden,
        scene.denial(&gold),
        scene.denial(&usual),
    ];
    for (rejection, protocol) in [
        (Rejection::problem(), WireProtocol::Http),
        (Rejection::json(), WireProtocol::Http),
        (Rejection::text(), WireProtocol::Http),
        (Rejection::default(), WireProtocol::Grpc),
    ] {
        let new = || Responses::new(rejection.clone(), &scene.rules, TOO_MANY);
        let one = new();
        for denial in denials.iter().chain(&denials) {
            let (response, fresh) = (
                one.respond(denial, protocol),
                new().respond(denial, protocol),
            );
            assert_eq!(response.headers(), fresh.headers(), "{denial:?}");
            assert_eq!(response.body(), fresh.body(), "{denial:?}");
        }
    }
}

#[test]
fn the_status_of_a_problem_is_that_of_the_response() {
    let scene = Scene::new();
    let decision = scene.decide([denied(0, 0, SOON)]);
    let denial = Denial::new(
        Head::from(&scene.head),
        &decision,
        &scene.rules,
        StatusCode::FORBIDDEN,
    );
    for prepared_for in [TOO_MANY, StatusCode::FORBIDDEN] {
        let responses = Responses::new(Rejection::problem(), &scene.rules, prepared_for);
        let response = responses.respond(&denial, WireProtocol::Http);
        assert_eq!(response.status(), 403);
        let body: Value = serde_json::from_slice(response.body()).expect("JSON");
        assert_eq!(body["status"], 403);
    }
}

#[test]
fn a_hidden_quota_leaves_only_the_retry_time_in_the_body() {
    let scene = Scene::new();
    let decision = scene.decide([denied(0, 0, SOON)]);
    let denial = scene.denial(&decision).hidden();
    assert_eq!(
        scene.body(Rejection::problem(), &denial),
        concat!(
            r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
            r#""title":"Quota exceeded","status":429,"retry_after_ms":16001}"#
        )
    );
    assert_eq!(
        scene.body(Rejection::json(), &denial),
        r#"{"error":"rate_limit_exceeded","message":"Quota exceeded","retry_after_ms":16001}"#
    );
    assert_eq!(
        scene.body(Rejection::text(), &denial),
        "Quota exceeded. Try again in 17 s.\n"
    );
}

#[test]
fn a_body_has_the_retry_time_with_its_jitter() {
    let scene = Scene::new();
    let decision = scene.decide([denied(0, 0, SOON)]);
    let denial = Denial {
        retry_after: Some(Duration::from_micros(20_000_001)),
        ..scene.denial(&decision)
    };
    assert_eq!(denial.retry(), SOON);
    assert_eq!(
        scene.value(Rejection::problem(), &denial)["retry_after_ms"],
        20_001
    );
}
