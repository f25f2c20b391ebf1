//! The same over HTTP/1.1 and HTTP/2.

use axum::{Router, routing};
use tollgate::RateLimitLayer;
use tollgate_tests::server::Server;

use crate::{
    curl::{BOTH, Version, curl},
    per_minute,
};
use tollgate_tests::app::layer;

async fn served(layer: RateLimitLayer) -> Server {
    let routes = routing::any(|| async { "hello" });
    Server::start(Router::new().route("/", routes).layer(layer)).await
}

#[tokio::test]
async fn a_denial_is_complete_with_lower_case_names() {
    for version in BOTH {
        let server = served(layer([per_minute("one", 1)])).await;
        curl(version, server.address(), "/", &[]).await;
        let denied = curl(version, server.address(), "/", &[]).await;
        let length = denied.body.len().to_string();
        let expected = [
            ("cache-control", "no-store"),
            ("content-length", &length),
            ("content-type", "application/problem+json"),
            ("ratelimit", r#""one";r=0;t=60"#),
            ("ratelimit-policy", r#""one";q=1;w=60"#),
            ("retry-after", "60"),
        ];
        assert_eq!(denied.status(), 429, "{version:?}");
        assert_eq!(denied.fields(), expected, "{version:?}");
        let spoken = match version {
            Version::Http1 => "1.1",
            Version::Http2 => "2",
        };
        assert_eq!(denied.transfer["http_version"], spoken);
    }
}

#[tokio::test]
async fn a_denied_head_has_the_fields_of_get_and_no_body() {
    for version in BOTH {
        let server = served(layer([per_minute("one", 1)])).await;
        curl(version, server.address(), "/", &[]).await;
        let get = curl(version, server.address(), "/", &[]).await;
        let head = curl(version, server.address(), "/", &["--head"]).await;
        assert_eq!(head.status(), 429, "{version:?}");
        assert_eq!(head.fields(), get.fields(), "{version:?}");
        assert!(!get.body.is_empty());
        assert!(head.body.is_empty(), "{version:?}");
    }
}
