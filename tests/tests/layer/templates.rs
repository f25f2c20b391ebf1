//! Header fields and bodies with names of the service's own.

use std::convert::Infallible;

use http::{HeaderName, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use serde_json::{Value, json};
use tollgate::{
    DAY, LimitsEndpoint, MINUTE, MemoryStore, Quota, RateLimitLayer, Rejection, Rule,
    clock::ManualClock,
    header::HeaderStyle,
    key::{constant, header},
};
use tower::{Layer as _, ServiceExt as _, service_fn};

fn layer(name: &str, limit: u64, clock: &ManualClock) -> RateLimitLayer {
    let rules = [
        Rule::new(name, Quota::fixed_window(limit, MINUTE)),
        Rule::new("daily", Quota::fixed_window(1_000, DAY)),
    ];
    let store = MemoryStore::builder().clock(clock).build();
    let layer = RateLimitLayer::new(store, rules.map(|rule| rule.by(header("x-api-key"))));
    let body = r#"{"error": {"code": {reason}, "rule": {rule}, "of": [{used}, {limit}], "wait": {reset}}, "{other": {}}"#;
    let layer = layer
        .expect("rules")
        .headers(HeaderStyle::NONE)
        .expect("a style");
    let fields = [
        ("ratelimit-limit", "{limit};window={window}"),
        ("ratelimit-reset", "{reset_at}"),
        ("x-ratelimit-used", "{used}"),
        ("x-ratelimit-resource", "{rule}"),
        ("x-never", "{reason}"),
    ];
    fields.iter().fold(
        layer.rejection(Rejection::json_template(body).expect("a template")),
        |layer, (name, template)| {
            layer
                .header_field(HeaderName::from_static(name), template)
                .expect("a template")
        },
    )
}

async fn empty(_: Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::default())
}

async fn ask(outer: &RateLimitLayer, inner: &RateLimitLayer) -> (StatusCode, Vec<String>, Bytes) {
    let request = Request::get("/")
        .header("x-api-key", "acme")
        .body(Full::<Bytes>::default());
    let service = outer.layer(inner.layer(service_fn(empty)));
    let response = service
        .oneshot(request.expect("a request"))
        .await
        .expect("it is infallible");
    let (head, body) = response.into_parts();
    let names = [
        "ratelimit-limit",
        "x-ratelimit-used",
        "x-ratelimit-resource",
        "x-never",
        "ratelimit",
    ];
    let fields = names
        .iter()
        .filter_map(|name| head.headers.get(*name))
        .map(|value| value.to_str().expect("ascii").to_owned());
    let reset = head
        .headers
        .get("ratelimit-reset")
        .and_then(|it| it.to_str().ok()?.parse::<u64>().ok());
    // Of the response's own clock, not that of the store.
    assert!(
        reset.is_some_and(|reset| reset > 1_750_000_000),
        "{reset:?}"
    );
    (
        head.status,
        fields.collect(),
        body.collect().await.expect("it is whole").to_bytes(),
    )
}

#[tokio::test]
async fn fields_and_bodies_have_the_names_that_clients_expect() {
    let clock = ManualClock::default();
    let (outer, inner) = (layer("outer", 120, &clock), layer("inner", 1, &clock));
    // What the inner layer says stays.
    let allowed = ask(&outer, &inner).await;
    assert_eq!(
        (allowed.0, &allowed.1[..]),
        (
            StatusCode::OK,
            &["1;window=60", "1", "inner"].map(str::to_owned)[..]
        )
    );
    let (status, fields, body) = ask(&outer, &inner).await;
    assert_eq!(
        (status, &fields[0][..]),
        (StatusCode::TOO_MANY_REQUESTS, "1;window=60")
    );
    let body = String::from_utf8(body.to_vec()).expect("text");
    let (body, end) = body
        .split_once(", \"{other\"")
        .expect("braces of JSON stay");
    assert_eq!(end, ": {}}");
    let body: Value = serde_json::from_str(&format!("{body}}}")).expect("it is JSON");
    assert_eq!(
        body,
        json!({ "error": { "code": "quota", "rule": "inner", "of": [1, 1], "wait": 40 } })
    );
    // A hidden quota is hidden here too.
    let hidden = layer("hidden", 1, &clock).hide_quota();
    let mut last = Bytes::new();
    for _ in 0..2 {
        let response = hidden
            .layer(service_fn(empty))
            .oneshot(Request::new(Full::<Bytes>::default()))
            .await
            .expect("it is infallible");
        assert!(response.headers().get("x-ratelimit-used").is_none());
        last = response
            .into_body()
            .collect()
            .await
            .expect("it is whole")
            .to_bytes();
    }
    let last = String::from_utf8_lossy(&last).into_owned();
    assert!(
        last.contains(r#""rule": null, "of": [null, null], "wait": 40"#),
        "{last}"
    );
    let error = layer("wrong", 1, &clock)
        .header_field(HeaderName::from_static("x-a"), "{limits}")
        .expect_err("no such variable");
    assert!(
        error.to_string().contains("did you mean \"limit\"?"),
        "{error}"
    );
}

#[tokio::test]
async fn fields_of_a_style_are_written_before_those_of_the_service() {
    let field = |style, name, template| {
        let rule = Rule::new("api", Quota::fixed_window(60, MINUTE)).by(constant("all"));
        let layer = RateLimitLayer::new(MemoryStore::new(), [rule]).expect("a rule");
        let layer = layer.headers(style).expect("a style");
        layer.header_field(HeaderName::from_static(name), template)
    };
    for (style, name, template, expected) in [
        (
            HeaderStyle::X_RATELIMIT_DELTA,
            "x-ratelimit-remaining",
            "{remaining}",
            ["x-ratelimit-limit", "x-ratelimit-remaining"],
        ),
        (
            HeaderStyle::DRAFT_6,
            "ratelimit-remaining",
            "{remaining}",
            ["ratelimit-limit", "ratelimit-remaining"],
        ),
        (
            HeaderStyle::DRAFT_7,
            "ratelimit-policy",
            "{limit};window={window}",
            ["ratelimit-policy", "ratelimit"],
        ),
    ] {
        let layer = field(style, name, template).expect("a template");
        let service = layer.layer(service_fn(empty));
        let Ok(response) = service.oneshot(Request::default()).await;
        let values = expected.map(|name| {
            let mut values = response.headers().get_all(name).iter();
            let value = values.next().map(|value| value.to_str().expect("ascii"));
            assert!(values.next().is_none(), "{name} is there twice");
            value.unwrap_or_default().to_owned()
        });
        let style = match style {
            HeaderStyle::DRAFT_7 => ["60;w=60", "limit=60, remaining=59, reset="],
            _ => ["60", "59"],
        };
        assert!(
            values
                .iter()
                .zip(style)
                .all(|(value, of_style)| value.starts_with(of_style)),
            "{name}: {values:?}"
        );
    }
}

#[tokio::test]
async fn a_moment_is_the_end_of_the_window_however_long_the_handler_takes() {
    let rule = Rule::new("per-minute", Quota::fixed_window(60, MINUTE)).by(constant("all"));
    let limits = RateLimitLayer::new(MemoryStore::new(), [rule]).expect("a rule");
    let limits = limits
        .headers(HeaderStyle::X_RATELIMIT_EPOCH)
        .expect("a style");
    let request = Request::new(Full::<Bytes>::default());
    let response = limits.layer(service_fn(empty)).oneshot(request).await;
    let response = response.expect("it is infallible");
    let reset = &response.headers()["x-ratelimit-reset"];
    let reset: u64 = reset.to_str().expect("ascii").parse().expect("a number");
    assert_eq!(reset % 60, 0, "{reset}");
    let endpoint = LimitsEndpoint::new([&limits], constant("all")).expect("a key");
    let (head, ()) = Request::new(()).into_parts();
    let left = endpoint.respond(&head).await.into_body();
    let left: Value = serde_json::from_slice(&left).expect("it is JSON");
    let reset = left["resources"]["per-minute"]["reset"].as_u64();
    assert_eq!(reset.map(|it| it % 60), Some(0), "{left}");
}
