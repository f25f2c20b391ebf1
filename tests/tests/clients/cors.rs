//! CORS around the layer and inside of it, as a browser asks.

use axum::{Router, routing};
use http::{HeaderName, Method, header};
use tollgate::{
    RateLimitLayer,
    header::{exposed_headers, grpc_exposed_headers},
};
use tollgate_tests::server::{Answer, Server};
use tower_http::cors::{Any, CorsLayer};

use crate::{grpc_web, per_minute};
use tollgate_tests::app::layer;

const ORIGIN: (&str, &str) = ("origin", "https://app.example");
const PREFLIGHT: [(&str, &str); 3] = [
    ORIGIN,
    ("access-control-request-method", "GET"),
    ("access-control-request-headers", "x-api-key"),
];

/// What a service allows that shows its budgets to scripts.
pub(crate) fn cors() -> CorsLayer {
    let exposed = exposed_headers().chain(grpc_exposed_headers());
    CorsLayer::new()
        .allow_origin(Any)
        .allow_methods([Method::GET, Method::POST])
        .allow_headers([
            header::CONTENT_TYPE,
            HeaderName::from_static("x-api-key"),
            HeaderName::from_static("x-grpc-web"),
        ])
        .expose_headers(exposed.collect::<Vec<_>>())
}

fn hello() -> Router {
    Router::new().route("/", routing::get(|| async { "hello" }))
}

fn exhausted() -> RateLimitLayer {
    layer([per_minute("none", 1).cost_by(|_| 2)])
}

fn exposes(answer: &Answer, names: impl Iterator<Item = HeaderName>) -> bool {
    let exposed = answer.list("access-control-expose-headers");
    let exposed: Vec<_> = exposed.split(',').map(str::trim).collect();
    names
        .into_iter()
        .all(|name| exposed.contains(&name.as_str()))
}

#[tokio::test]
async fn a_preflight_passes_an_exhausted_limiter_wherever_cors_is() {
    for app in [
        hello().layer(exhausted()).layer(cors()),
        hello().layer(cors()).layer(exhausted()),
    ] {
        let server = Server::start(app).await;
        let preflight = server.send("OPTIONS", "/", &PREFLIGHT).await;
        assert_eq!(preflight.status, 200);
        assert_eq!(preflight.header("access-control-allow-origin"), Some("*"));
        let allowed = preflight.list("access-control-allow-headers");
        assert!(allowed.contains("x-api-key"), "{allowed}");
        assert_eq!(server.send("GET", "/", &[ORIGIN]).await.status, 429);
    }
}

#[tokio::test]
async fn a_denial_in_grpc_web_exposes_its_status() {
    let server = Server::start(grpc_web::inside(exhausted()).layer(cors())).await;
    let headers = [ORIGIN, ("content-type", "application/grpc-web+proto")];
    let denied = server.send("POST", grpc_web::CURRENT, &headers).await;
    assert_eq!(denied.status, 200);
    assert_eq!(denied.header("grpc-status"), Some("8"));
    assert!(exposes(&denied, grpc_exposed_headers()), "{denied:?}");
    // All fields that the layer writes are exposed: the lists are complete.
    let safe = ["cache-control", "content-length", "content-type"];
    let of_http = ["connection", "date", "vary"];
    for name in denied.headers.keys() {
        let name = name.as_str();
        let known = safe.contains(&name) || of_http.contains(&name) || name.starts_with("access-");
        let name = HeaderName::try_from(name).unwrap();
        assert!(
            known || exposes(&denied, [name.clone()].into_iter()),
            "{name}"
        );
    }
}
