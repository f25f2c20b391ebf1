//! What goes over the wire.

use std::collections::BTreeSet;

use axum::{Router, routing};
use bytes::Bytes;
use http::{Request, Response};
use tollgate::{
    MINUTE, Quota, RateLimitLayer, Rejection, RequestRule, Rule,
    key::{client_ip, header},
};
use tollgate_tests::{
    app::{self, all, layer},
    server::{Server, head},
};

fn per_minute(name: &'static str, limit: u64) -> RequestRule {
    app::per_minute(name, limit).by(client_ip())
}

async fn served(layer: RateLimitLayer) -> Server {
    let routes = routing::any(|| async { "hello" });
    Server::start(Router::new().route("/", routes).layer(layer)).await
}

const PREFLIGHT: [(&str, &str); 2] = [
    ("origin", "https://example.org"),
    ("access-control-request-method", "POST"),
];

#[tokio::test]
async fn an_incomplete_preflight_is_counted() {
    for (method, headers) in [
        ("OPTIONS", &PREFLIGHT[..0]),
        ("OPTIONS", &PREFLIGHT[..1]),
        ("OPTIONS", &PREFLIGHT[1..]),
        ("GET", &PREFLIGHT[..]),
        (
            "OPTIONS",
            &[PREFLIGHT[0], PREFLIGHT[1], ("content-type", "text/plain")],
        ),
    ] {
        let server = served(layer([per_minute("one", 1)])).await;
        assert_eq!(server.send(method, "/", headers).await.status, 200);
        assert_eq!(server.send(method, "/", headers).await.status, 429);
    }
}

#[tokio::test]
async fn a_preflight_with_a_body_is_counted() {
    for (framing, body) in [
        (("content-length", "4"), "work"),
        (("transfer-encoding", "chunked"), "4\r\nwork\r\n0\r\n\r\n"),
        // That it is empty is not known before it is read.
        (("transfer-encoding", "chunked"), "0\r\n\r\n"),
    ] {
        let server = served(layer([per_minute("one", 1)])).await;
        let mut headers = PREFLIGHT.to_vec();
        headers.extend([framing, ("connection", "close")]);
        let request = head("OPTIONS", "/", &headers) + body;
        for status in [200, 429] {
            let mut connection = server.connect().await;
            connection.write(&request).await;
            assert_eq!(connection.answer().await.status, status, "{framing:?}");
        }
    }
}

#[tokio::test]
async fn a_redirect_that_stands_for_a_denial_carries_no_fields_either() {
    let elsewhere = Rejection::custom(|_| {
        let response = Response::builder().status(303).header("location", "/wait");
        response.body(Bytes::new()).unwrap()
    });
    let server = served(layer([per_minute("one", 1)]).rejection(elsewhere)).await;
    assert_eq!(server.get("/").await.status, 200);
    let denied = server.get("/").await;
    assert_eq!((denied.status, denied.tells_budget()), (303, false));
    assert_eq!(denied.header("retry-after"), Some("60"));
}

#[tokio::test]
async fn so_does_a_grpc_response_to_a_request_that_many_rules_allow() {
    for (count, over_grpc) in [(9, true), (50, true), (100, false)] {
        let rules = (0..count).map(|number| {
            let quota = Quota::fixed_window(9, MINUTE);
            all(Rule::new(format!("rule-{number:0>40}"), quota))
        });
        let limits = layer(rules);
        for (content_type, has_fields) in [("application/grpc", over_grpc), ("text/plain", true)] {
            let answer = [("content-type", content_type)];
            let app = Router::new().route("/a.B/C", routing::post(async move || answer));
            let app = app.layer(limits.clone());
            let call = Request::post("/a.B/C").header("content-type", content_type);
            let response = app::send(&app, call).await;
            assert_eq!(response.status(), 200);
            let fields = ["ratelimit", "ratelimit-policy"];
            let are_there = fields.map(|name| response.headers().contains_key(name));
            assert_eq!(are_there, [has_fields; 2], "{count} rules, {content_type}");
        }
    }
}

#[tokio::test]
async fn jitter_only_makes_the_wait_longer_and_stays_the_same_for_a_client() {
    let layer = layer([per_minute("one", 1)]).retry_after_jitter(50);
    let server = served(layer.expect("a share")).await;
    server.get("/").await;
    let first = server.get("/").await;
    let reported = first.header("retry-after");
    let seconds: u64 = reported.unwrap().parse().unwrap();
    assert!((60..=90).contains(&seconds), "{seconds}");
    let again = server.get("/").await;
    assert_eq!(again.header("retry-after"), reported);
    // The field about the quota is exact.
    assert_eq!(again.header("ratelimit"), Some(r#""one";r=0;t=60"#));
}

#[tokio::test]
async fn jitter_differs_between_clients_of_a_shared_rule() {
    let everybody = Rule::new("everybody", Quota::fixed_window(1, 60 * MINUTE));
    let each = app::per_minute("each", 99).by(header("x-api-key"));
    let layer = layer([all(everybody), each]);
    let server = served(layer.retry_after_jitter(50).expect("a share")).await;
    server.get("/").await;
    let mut waits = BTreeSet::new();
    for key in 0..20 {
        let key = key.to_string();
        let denied = server.send("GET", "/", &[("x-api-key", &key)]).await;
        waits.insert(denied.header("retry-after").map(str::to_owned));
    }
    assert!(waits.len() > 10, "{waits:?}");
}
