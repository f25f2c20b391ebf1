//! The gRPC responses as bytes, compared with those of tonic.

use std::{collections::HashMap, time::Duration};

use http::{HeaderMap, Request, Response, StatusCode, header::CONTENT_TYPE};
use proptest::prelude::*;
use tollgate_core::{
    Decision, MINUTE, Quota, Reason, Retry, Rule, RuleSet, Source, Verdict, algorithm::Assessment,
};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, ErrorInfo, QuotaFailure, QuotaViolation, StatusExt as _};

use super::scene::{SOON, Scene, TOO_MANY, denied};
use crate::{
    head::Head,
    key::NoKey,
    protocol::Protocol,
    rejection::{Denial, Rejection, Responses},
};

const DETAILS: &str = "grpc-status-details-bin";

fn scene() -> Scene {
    let mut scene = Scene::new();
    let call = Request::post("/weather.v1.Weather/Current")
        .header(CONTENT_TYPE, "application/grpc+proto; x=y");
    scene.head = call.body(()).expect("a request").into_parts().0;
    scene
}

fn respond(scene: &Scene, denial: &Denial<'_>) -> Response<bytes::Bytes> {
    let protocol = Protocol::Auto.of(&Head::from(&scene.head));
    Responses::new(Rejection::default(), &scene.rules, TOO_MANY).respond(denial, protocol)
}

fn fields(headers: &HeaderMap) -> Vec<(&str, &str)> {
    headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().expect("ASCII")))
        .collect()
}

/// A denial by `per-min` with this retry time.
fn lasting(scene: &Scene, wait: Duration) -> Decision {
    scene.decide([denied(0, 0, Retry::after_micros(wait.as_micros() as u64))])
}

#[test]
fn a_hidden_quota_leaves_only_retry_info() {
    let scene = scene();
    let decision = lasting(&scene, Duration::from_secs(7));
    let response = respond(&scene, &scene.denial(&decision).hidden());
    assert_eq!(response.status(), StatusCode::OK);
    assert!(response.body().is_empty());
    assert_eq!(
        fields(response.headers()),
        [
            ("content-type", "application/grpc"),
            ("grpc-status", "8"),
            ("grpc-message", "rate limit exceeded"),
            (
                DETAILS,
                "CAgSE3JhdGUgbGltaXQgZXhjZWVkZWQaMAoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIECgIIBw"
            ),
            ("grpc-retry-pushback-ms", "7000"),
        ]
    );
}

/// What tonic and its types write for the same status.
fn by_tonic(code: Code, message: &str, details: ErrorDetails) -> HeaderMap {
    let status = Status::with_error_details(code, message, details);
    status.into_http::<()>().into_parts().0.headers
}

fn violation(name: &str, description: &str, limit: i64) -> QuotaViolation {
    QuotaViolation {
        subject: format!("policy:{name}"),
        description: description.to_owned(),
        quota_id: name.to_owned(),
        quota_value: limit,
        ..Default::default()
    }
}

fn details(wait: Option<Duration>, violations: Vec<QuotaViolation>, reason: &str) -> ErrorDetails {
    let mut details = ErrorDetails::new();
    if wait.is_some() {
        details.set_retry_info(wait);
    }
    details.set_quota_failure(violations);
    details.set_error_info(reason, "weather.v1.Weather", HashMap::new());
    details
}

fn assert_as_tonic(response: &Response<bytes::Bytes>, tonic: &HeaderMap) {
    for name in ["content-type", "grpc-status", DETAILS] {
        assert_eq!(response.headers().get(name), tonic.get(name), "{name}");
    }
    // tonic encodes spaces, which PROTOCOL-HTTP2 allows and does not require.
    let message = tonic["grpc-message"].to_str().expect("ASCII");
    let message = message.replace("%20", " ");
    assert_eq!(response.headers()["grpc-message"], message);
}

#[test]
fn the_details_equal_those_of_tonic_byte_by_byte() {
    let scene = scene();
    let per_min = || {
        violation(
            "per-min",
            "Policy \"per-min\" allows 100 requests per 60 s.",
            100,
        )
    };
    let per_day = violation(
        "per-day",
        "Policy \"per-day\" allows 1000 requests per 86400 s.",
        1_000,
    );
    let wait = Duration::from_micros(16_000_001);

    let decision = scene.decide([denied(0, 0, SOON)]);
    let response = respond(&scene, &scene.denial(&decision));
    let expected = details(Some(wait), vec![per_min()], "RATE_LIMIT_EXCEEDED");
    assert_as_tonic(
        &response,
        &by_tonic(Code::ResourceExhausted, "rate limit exceeded", expected),
    );
    assert_eq!(response.headers()["grpc-retry-pushback-ms"], "16001");

    // Two rules, and a shadow, which is not reported.
    let decision = scene.decide([denied(0, 0, SOON), denied(1, 0, SOON), denied(2, 0, SOON)]);
    let response = respond(&scene, &scene.denial(&decision));
    let expected = details(Some(wait), vec![per_min(), per_day], "RATE_LIMIT_EXCEEDED");
    assert_as_tonic(
        &response,
        &by_tonic(Code::ResourceExhausted, "rate limit exceeded", expected),
    );
}

#[test]
fn a_status_says_why_there_is_no_slot_and_no_wait() {
    let mut scene = scene();
    let rule = Rule::new("exports", Quota::concurrent(3));
    scene.rules = RuleSet::new([rule]).expect("a valid rule");
    let at_once = || {
        violation(
            "exports",
            "Policy \"exports\" allows 3 requests at once.",
            3,
        )
    };
    for (reason, message, word) in [
        (
            Reason::Slots,
            "too many requests at once",
            "CONCURRENCY_LIMIT_EXCEEDED",
        ),
        (
            Reason::QueueFull,
            "too many requests wait",
            "WAIT_QUEUE_FULL",
        ),
        (
            Reason::WaitExpired,
            "the time to wait is over",
            "WAIT_EXPIRED",
        ),
    ] {
        let decision = scene.decide([denied(0, 0, Retry::Unknown).of_slots(None)]);
        let decision = decision.denied_for(reason);
        let response = respond(&scene, &scene.denial(&decision));
        let expected = details(None, vec![at_once()], word);
        assert_as_tonic(
            &response,
            &by_tonic(Code::ResourceExhausted, message, expected),
        );
        let quiet = respond(&scene, &scene.denial(&decision).hidden());
        assert_eq!(quiet.headers()["grpc-message"], "rate limit exceeded");
    }
}

#[test]
fn a_missing_key_is_the_code_that_means_the_rules_status() {
    let scene = scene();
    let nothing = Decision::without_key(Reason::NoKey);
    let misconfigured = NoKey::Misconfigured("call into_make_service_with_connect_info".into());
    for (status, why, quiet, code, message) in [
        (401, &NoKey::Absent, false, "16", "the request has no key"),
        (
            400,
            &NoKey::Ambiguous,
            false,
            "3",
            "the request carries its key more than once",
        ),
        (
            403,
            &misconfigured,
            false,
            "7",
            "the service cannot tell who is asking",
        ),
        (404, &NoKey::Absent, false, "5", "the request has no key"),
        (418, &NoKey::Absent, false, "16", "the request has no key"),
        (429, &NoKey::Absent, false, "8", "rate limit exceeded"),
        (503, &NoKey::Absent, false, "14", "service unavailable"),
        (401, &NoKey::Ambiguous, true, "16", "refused"),
    ] {
        let status = StatusCode::from_u16(status).expect("a status");
        let mut denial = scene.keyless(&nothing, status, why);
        denial.hide_quota = quiet;
        let response = respond(&scene, &denial);
        assert_eq!(response.headers()["grpc-status"], code);
        let reported = Status::from_header_map(response.headers()).expect("a status");
        assert_eq!(reported.message(), message);
        assert_eq!(response.headers().get("grpc-retry-pushback-ms"), None);
    }
}

#[test]
fn grpc_web_gets_the_form_that_its_client_accepts() {
    let mut scene = scene();
    for (content_type, accept, expected) in [
        ("application/grpc-web", None, "application/grpc-web+proto"),
        (
            "application/grpc-web+proto",
            Some("*/*"),
            "application/grpc-web+proto",
        ),
        (
            "application/grpc-web-text",
            None,
            "application/grpc-web-text+proto",
        ),
        (
            "application/grpc-web",
            Some("application/grpc-web-text"),
            "application/grpc-web-text+proto",
        ),
        (
            "application/grpc-web-text+proto",
            Some("application/grpc-web+proto"),
            "application/grpc-web+proto",
        ),
    ] {
        let mut call =
            Request::post("/weather.v1.Weather/Current").header(CONTENT_TYPE, content_type);
        if let Some(accept) = accept {
            call = call.header("accept", accept);
        }
        scene.head = call.body(()).expect("a request").into_parts().0;
        let decision = scene.decide([denied(0, 0, SOON)]);
        let response = respond(&scene, &scene.denial(&decision));
        assert_eq!(response.headers()[CONTENT_TYPE], expected);
        assert_eq!(response.headers()["grpc-status"], "8");
        assert!(response.body().is_empty());
    }
}

#[test]
fn pushback_is_whole_milliseconds_and_never_too_early() {
    let scene = scene();
    for (wait, pushback) in [
        (Duration::from_millis(1_500), "1500"),
        (Duration::from_micros(1_500_001), "1501"),
        (Duration::from_micros(1), "1"),
        (Duration::from_millis(2_147_483_647), "2147483647"),
        // 40 days do not fit; what would fit is 15 days too early.
        (Duration::from_secs(40 * 86_400), "-1"),
    ] {
        let decision = lasting(&scene, wait);
        let response = respond(&scene, &scene.denial(&decision));
        assert_eq!(response.headers()["grpc-retry-pushback-ms"], pushback);
    }
}

#[test]
fn the_details_stay_below_4_kib() {
    for length in 8..=64 {
        let names: Vec<_> = (0..200).map(|n| format!("r{n:0>0$}", length - 1)).collect();
        let rules = names
            .iter()
            .map(|name| Rule::new(&**name, Quota::fixed_window(1, MINUTE)));
        let mut scene = scene();
        scene.rules = RuleSet::new(rules).expect("valid rules");
        scene.head.uri = format!("/{}/x", "s".repeat(128)).parse().expect("a path");
        let decision = scene.decide((0..200).map(|rule| denied(rule, 0, SOON)));
        let response = respond(&scene, &scene.denial(&decision));
        let size = response.headers()[DETAILS].len();
        assert!(size < 4_096, "{size} with names of {length}");
    }
}

#[test]
fn the_service_is_shown_unless_its_name_is_very_long() {
    for (length, is_shown) in [(128, true), (129, false)] {
        let mut scene = scene();
        let service = "s".repeat(length);
        scene.head.uri = format!("/{service}/x").parse().expect("a path");
        let decision = scene.decide([denied(0, 0, SOON)]);
        let response = respond(&scene, &scene.denial(&decision));
        let status = Status::from_header_map(response.headers()).expect("a status");
        let info = status.get_details_error_info().expect("it has details");
        assert_eq!(info.domain, if is_shown { &*service } else { "" });
    }
}

proptest! {
    #[test]
    fn tonic_reads_the_same_values(
        micros in 1..10_u64.pow(13),
        limit in 1..1_000_000_u64,
        name in "[A-Za-z*][A-Za-z0-9_.:/*-]{0,63}",
    ) {
        let mut scene = scene();
        let rule = Rule::new(&*name, Quota::fixed_window(limit, MINUTE));
        scene.rules = RuleSet::new([rule]).expect("a valid rule");
        let answer = Assessment::new(false, 0, micros, Retry::after_micros(micros));
        let decision = scene.decide([Verdict::new(0, 0, answer, Source::Store)]);
        let denial = scene.denial(&decision);
        let response = respond(&scene, &denial);
        let raw = response.headers()[DETAILS].to_str().expect("ASCII");
        prop_assert!(!raw.contains('='));
        let status = Status::from_header_map(response.headers()).expect("a status");
        let details = status.get_error_details();
        let wait = Duration::from_micros(micros);
        let reported = details.retry_info().and_then(|info| info.retry_delay);
        prop_assert_eq!(reported, Some(wait));
        let failure: &QuotaFailure = details.quota_failure().expect("it is there");
        prop_assert_eq!(&failure.violations[0].quota_id, &name);
        prop_assert_eq!(failure.violations[0].quota_value, limit as i64);
        let info: &ErrorInfo = details.error_info().expect("it is there");
        prop_assert_eq!(&*info.domain, "weather.v1.Weather");
    }
}
