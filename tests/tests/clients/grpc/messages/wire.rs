//! Limits on messages, over the wire.

use std::time::Duration;

use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tollgate::{
    MINUTE, Missing, OnStoreError, Quota, Rule,
    key::{constant, header},
    message::MessageLimitLayer,
};
use tollgate_conformance::SwitchedStore;
use tollgate_tests::weather::{
    Mild, city, report,
    v1::{City, Report, weather_server::WeatherServer},
};
use tonic::{Code, Request, Status, Streaming};
use tonic_types::StatusExt;
use tower::{Layer, ServiceExt};

use crate::grpc::{
    messages::by_hand::still,
    messages::served::{HANGS, Served, served},
};

fn few(limit: u64) -> Rule {
    Rule::new("messages", Quota::fixed_window(limit, MINUTE))
}

fn limits(store: impl tollgate::Store, limit: u64) -> MessageLimitLayer {
    MessageLimitLayer::new(store, [few(limit).by(constant("all"))]).expect("a valid rule")
}

fn reports(number: usize) -> impl tokio_stream::Stream<Item = Report> {
    tokio_stream::iter(vec![report("Oslo"); number])
}

/// A stream of questions, one at a time.
struct Exchange {
    cities: mpsc::Sender<City>,
    answers: Streaming<Report>,
}

impl Exchange {
    async fn begin(served: &Served) -> Self {
        let (cities, stream) = mpsc::channel(1);
        let mut client = served.client.clone();
        let answers = client.exchange(ReceiverStream::new(stream)).await;
        let answers = answers.expect("it begins").into_inner();
        Self { cities, answers }
    }

    async fn next(&mut self) -> Result<Option<Report>, Status> {
        self.cities.send(city("Oslo")).await.expect("it is open");
        timeout(HANGS, self.answers.message())
            .await
            .expect("an answer")
    }
}

#[tokio::test]
async fn a_denial_before_the_response_has_all_quota_fields() {
    let served = served(&Mild::default(), limits(still(), 3)).await;
    let status = served.client.clone().record(reports(4)).await.unwrap_err();
    assert_eq!(status.message(), "rate limit exceeded");
    let wait = status.get_details_retry_info().expect("a wait").retry_delay;
    assert_eq!(wait, Some(MINUTE));
    let violations = status.get_details_quota_failure().expect("a quota");
    assert_eq!(violations.violations[0].subject, "policy:messages");
    let allowed = &violations.violations[0].description;
    assert!(allowed.contains("3 messages per 60 s"), "{allowed}");
    for (name, value) in [
        ("retry-after", "60"),
        ("grpc-retry-pushback-ms", "60000"),
        ("ratelimit", r#""messages";r=0;t=60"#),
    ] {
        assert_eq!(status.metadata().get(name).unwrap(), value, "{name}");
    }
}

#[tokio::test]
async fn by_default_another_content_type_does_not_evade_the_limit() {
    let weather = Mild::default();
    let service = limits(still(), 3).layer(WeatherServer::new(weather.clone()));
    // tonic answers this: it looks at the path alone.
    let frame = [0; 5].repeat(9);
    let request = http::Request::put("/weather.v1.Weather/Record")
        .header("content-type", "text/plain")
        .body(axum::body::Body::from(frame));
    let response = service.oneshot(request.expect("a request")).await;
    let Ok(response) = response;
    assert_eq!(response.headers()["grpc-status"], "8");
    assert_eq!(weather.messages(), 3);
}

#[tokio::test]
async fn a_response_that_has_begun_ends_with_the_status() {
    let weather = Mild::default();
    let served = served(&weather, limits(still(), 3)).await;
    let mut exchange = Exchange::begin(&served).await;
    for _ in 0..3 {
        assert_eq!(exchange.next().await.unwrap(), Some(report("Oslo")));
    }
    let status = exchange.next().await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let wait = status.get_details_retry_info().expect("a wait").retry_delay;
    assert_eq!(wait, Some(MINUTE));
    // The drafts forbid the fields in trailers.
    assert!(status.metadata().get("ratelimit").is_none());
    assert_eq!(weather.messages(), 3);
}

#[tokio::test]
async fn a_failed_store_ends_streams_as_unavailable_with_deny() {
    for store in [
        SwitchedStore::at_once(still()),
        SwitchedStore::after(Duration::ZERO, still()),
    ] {
        let rule = few(100)
            .on_store_error(OnStoreError::Deny)
            .by(constant("all"));
        let limits = MessageLimitLayer::new(store.clone(), [rule]).expect("a valid rule");
        let mut served = served(&Mild::default(), limits).await;
        let mut exchange = Exchange::begin(&served).await;
        exchange.next().await.expect("the store is up");
        store.switch(false);
        let status = exchange.next().await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        let status = served.client.record(reports(2)).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
    }
}

#[tokio::test]
async fn a_call_without_a_key_is_rejected_at_once() {
    let rule = few(3)
        .by(header("x-api-key"))
        .when_missing(Missing::Reject(http::StatusCode::UNAUTHORIZED));
    let limits = MessageLimitLayer::new(still(), [rule]).expect("a valid rule");
    let weather = Mild::default();
    let mut served = served(&weather, limits).await;
    let status = served.client.record(reports(1)).await.unwrap_err();
    assert_eq!((status.code(), weather.calls()), (Code::Unauthenticated, 0));
    let mut request = Request::new(reports(1));
    request
        .metadata_mut()
        .insert("x-api-key", "k1".parse().unwrap());
    served.client.record(request).await.expect("it has a key");
}
