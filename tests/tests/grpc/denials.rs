//! The denials that clients get.

use std::{collections::HashMap, time::Duration};

use tollgate::{Quota, RateLimitLayer, Rule};
use tollgate_tests::{
    app::{all, still},
    weather::{Mild, city},
};
use tonic::{Code, metadata::MetadataMap};
use tonic_types::StatusExt;

use crate::{few, serve};

fn text<'a>(metadata: &'a MetadataMap, name: &str) -> Option<&'a str> {
    let mut values = metadata.get_all(name).iter();
    let value = values.next()?;
    assert!(values.next().is_none(), "{name} is there twice");
    value.to_str().ok()
}

#[tokio::test]
async fn a_denied_call_has_every_detail() {
    let (store, clock) = still();
    let fewer = Rule::new("fewer", Quota::gcra(1, Duration::from_millis(90_500)));
    let layer = RateLimitLayer::new(store, [few(1), all(fewer)]).expect("valid rules");
    let service = Mild::default();
    let server = serve(layer, &service).await;
    let mut client = server.client().await;
    client.current(city("Oslo")).await.expect("it is allowed");
    clock.advance(Duration::from_micros(1));

    let denied = client.current(city("Oslo")).await;
    let status = denied.expect_err("it is denied");
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.message(), "rate limit exceeded");
    let details = status.get_error_details();
    let wait = Duration::from_micros(90_499_999);
    let retry = details.retry_info().expect("the status says when to retry");
    assert_eq!(retry.retry_delay, Some(wait));
    let failure = details.quota_failure().expect("the status says why");
    let [few, fewer] = &failure.violations[..] else {
        panic!("{failure:?}");
    };
    assert_eq!(few.description, "Policy \"few\" allows 1 request per 60 s.");
    assert_eq!(
        fewer.description,
        "Policy \"fewer\" allows 1 request per 90500 ms."
    );
    assert_eq!(
        (&*few.subject, &*few.quota_id, few.quota_value),
        ("policy:few", "few", 1)
    );
    let info = details
        .error_info()
        .expect("the status says what, for programs");
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
    let early = client.current(city("Oslo")).await;
    early.expect_err("a tick too early");
    clock.advance(Duration::from_micros(1));
    let then = client.current(city("Oslo")).await;
    then.expect("it was worth the wait");
}
