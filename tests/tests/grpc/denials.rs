//! What clients are told.

use std::{collections::HashMap, time::Duration};

use http_body::Body as _;
use tollgate::{
    HeaderStyle, MINUTE, Missing, OnStoreError, Quota, RateLimitLayer, Rule, SECOND,
    key::{constant, header},
};
use tollgate_tests::{
    slow::SlowStore,
    weather::{Mild, city},
};
use tonic::{Code, Request, Status, metadata::MetadataMap};
use tonic_types::StatusExt;
use tower::{Service, ServiceExt};

use crate::{few, layer, serve, still, used_up};

fn text<'a>(metadata: &'a MetadataMap, name: &str) -> Option<&'a str> {
    let mut values = metadata.get_all(name).iter();
    let value = values.next()?;
    assert!(values.next().is_none(), "{name} is there twice");
    value.to_str().ok()
}

#[tokio::test]
async fn an_allowed_call_gets_the_remaining_units() {
    let server = serve(layer([few(3)]), &Mild::default()).await;
    let answer = server
        .client()
        .await
        .current(city("Oslo"))
        .await
        .expect("it is allowed");
    assert_eq!(answer.get_ref().city, "Oslo");
    assert_eq!(
        text(answer.metadata(), "ratelimit"),
        Some("\"few\";r=2;t=60")
    );
    assert_eq!(
        text(answer.metadata(), "ratelimit-policy"),
        Some("\"few\";q=3;w=60")
    );
    assert_eq!(text(answer.metadata(), "retry-after"), None);
}

#[tokio::test]
async fn a_denied_call_has_every_detail() {
    let (store, clock) = still();
    let rules = [
        few(1),
        Rule::new("fewer", Quota::gcra(1, Duration::from_millis(90_500))).by(constant("all")),
    ];
    let service = Mild::default();
    let server = serve(
        RateLimitLayer::new(store, rules).expect("valid rules"),
        &service,
    )
    .await;
    let mut client = server.client().await;
    client.current(city("Oslo")).await.expect("it is allowed");
    clock.advance(Duration::from_micros(1));

    let status = client
        .current(city("Oslo"))
        .await
        .expect_err("it is denied");
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.message(), "rate limit exceeded");
    let details = status.get_error_details();
    let wait = Duration::from_micros(90_499_999);
    let retry = details.retry_info().expect("it is told when to retry");
    assert_eq!(retry.retry_delay, Some(wait));
    let failure = details.quota_failure().expect("it is told why");
    let violations: Vec<_> = failure
        .violations
        .iter()
        .map(|violation| {
            (
                &*violation.subject,
                &*violation.description,
                &*violation.quota_id,
                violation.quota_value,
            )
        })
        .collect();
    assert_eq!(
        violations,
        [
            (
                "policy:few",
                "Policy \"few\" allows 1 request per 60 s.",
                "few",
                1
            ),
            (
                "policy:fewer",
                "Policy \"fewer\" allows 1 request per 90500 ms.",
                "fewer",
                1
            ),
        ]
    );
    let info = details.error_info().expect("it is told what for programs");
    assert_eq!(
        (&*info.reason, &*info.domain, &info.metadata),
        ("RATE_LIMIT_EXCEEDED", "weather.v1.Weather", &HashMap::new())
    );
    let metadata = status.metadata();
    assert_eq!(text(metadata, "grpc-retry-pushback-ms"), Some("90500"));
    assert_eq!(text(metadata, "retry-after"), Some("91"));
    assert_eq!(
        text(metadata, "ratelimit"),
        Some("\"few\";r=0;t=60, \"fewer\";r=0;t=91")
    );
    assert_eq!(service.calls(), 1);

    // It was true: at that tick it passes, and one earlier it does not.
    clock.advance(wait - Duration::from_micros(1));
    client
        .current(city("Oslo"))
        .await
        .expect_err("a tick too early");
    clock.advance(Duration::from_micros(1));
    client
        .current(city("Oslo"))
        .await
        .expect("it was worth the wait");
}

#[tokio::test]
async fn a_denial_is_one_header_frame_that_ends_the_stream() {
    let server = serve(used_up(), &Mild::default()).await;
    let mut channel = server.channel().await;
    let call = http::Request::post(format!(
        "http://{}/weather.v1.Weather/Current",
        server.address()
    ))
    .header("content-type", "application/grpc")
    .header("te", "trailers")
    .body(tonic::body::Body::empty())
    .expect("a request");
    let response = channel.ready().await.expect("connected").call(call).await;
    let response = response.expect("an answer");
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["grpc-status"], "8");
    assert_eq!(response.headers()["content-type"], "application/grpc");
    assert!(response.body().is_end_stream());
}

#[tokio::test]
async fn a_cost_that_never_fits_is_not_to_be_tried_again() {
    let rule = few(3).cost_by(|_| 4);
    let server = serve(layer([rule]), &Mild::default()).await;
    let status = server
        .client()
        .await
        .current(city("Oslo"))
        .await
        .expect_err("too much");
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.get_details_retry_info().is_none());
    assert_eq!(
        text(status.metadata(), "grpc-retry-pushback-ms"),
        Some("-1")
    );
    assert_eq!(text(status.metadata(), "retry-after"), None);
    let info = status.get_details_error_info().expect("the reason");
    assert_eq!(info.reason, "COST_EXCEEDS_LIMIT");
}

#[tokio::test]
async fn a_hidden_quota_leaves_only_the_retry_time() {
    let server = serve(used_up().hide_quota(), &Mild::default()).await;
    let status = server
        .client()
        .await
        .current(city("Oslo"))
        .await
        .expect_err("denied");
    let details = status.get_error_details();
    let retry = details.retry_info().expect("it is told when to retry");
    assert_eq!(retry.retry_delay, Some(MINUTE));
    assert!(details.quota_failure().is_none() && details.error_info().is_none());
    assert_eq!(text(status.metadata(), "ratelimit"), None);
    assert_eq!(text(status.metadata(), "ratelimit-policy"), None);
}

#[tokio::test]
async fn a_failed_store_is_unavailable_without_invented_numbers() {
    let store = SlowStore::at_once(still().0);
    store.fail(true);
    let rule = Rule::new("few", Quota::fixed_window(3, MINUTE))
        .on_store_error(OnStoreError::Deny)
        .by(constant("all"));
    let service = Mild::default();
    let server = serve(
        RateLimitLayer::new(store, [rule]).expect("a valid rule"),
        &service,
    )
    .await;
    let status = server
        .client()
        .await
        .current(city("Oslo"))
        .await
        .expect_err("unavailable");
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(status.message(), "service unavailable");
    assert!(status.details().is_empty());
    let reported: Vec<_> = status
        .metadata()
        .keys()
        .filter_map(|name| match name {
            tonic::metadata::KeyRef::Ascii(name) => Some(name.as_str()),
            tonic::metadata::KeyRef::Binary(_) => None,
        })
        .filter(|name| !["date", "content-type"].contains(name))
        .collect();
    assert!(reported.is_empty(), "{reported:?}");
    assert_eq!(service.calls(), 0);
}

#[tokio::test]
async fn a_call_without_its_key_is_unauthenticated() {
    let rule = Rule::new("per-key", Quota::gcra(1, SECOND))
        .by(header("x-api-key"))
        .when_missing(Missing::Reject(http::StatusCode::UNAUTHORIZED));
    let server = serve(layer([rule]), &Mild::default()).await;
    let mut client = server.client().await;
    let status = client.current(city("Oslo")).await.expect_err("no key");
    assert_eq!(status.code(), Code::Unauthenticated);
    assert_eq!(status.message(), "the request has no key");
    let mut call = Request::new(city("Oslo"));
    call.metadata_mut()
        .insert("x-api-key", "k1".parse().expect("a value"));
    client.current(call).await.expect("it has a key");
}

#[tokio::test]
async fn older_fields_are_metadata_as_well() {
    let style = HeaderStyle::DRAFT_6 | HeaderStyle::X_RATELIMIT_DELTA;
    let layer = layer([few(1)]).headers(style).expect("they go together");
    let server = serve(layer, &Mild::default()).await;
    let mut client = server.client().await;
    client.current(city("Oslo")).await.expect("it is allowed");
    let status: Status = client.current(city("Oslo")).await.expect_err("denied");
    assert_eq!(text(status.metadata(), "ratelimit-remaining"), Some("0"));
    assert_eq!(text(status.metadata(), "x-ratelimit-reset"), Some("60"));
}
