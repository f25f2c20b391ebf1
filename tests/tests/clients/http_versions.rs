//! The same over HTTP/1.1 and HTTP/2.

use axum::{Router, routing};
use http::header;
use tollgate::RateLimitLayer;
use tollgate_tests::server::Server;

use crate::{
    curl::{BOTH, Version, curl, tell_budget},
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

#[tokio::test]
async fn responses_for_shared_caches_have_no_quota_fields() {
    for version in BOTH {
        for control in [
            "public, max-age=60",
            "s-maxage=60",
            "max-age=5, S-MAXAGE=60",
        ] {
            let page = routing::get(move || async move { [(header::CACHE_CONTROL, control)] });
            let app = Router::new()
                .route("/", page)
                .layer(layer([per_minute("one", 1)]));
            let server = Server::start(app).await;
            let page = curl(version, server.address(), "/", &[]).await;
            assert_eq!(page.field("cache-control"), Some(control));
            assert!(!tell_budget(&page.fields()), "{page:?}");
            let denied = curl(version, server.address(), "/", &[]).await;
            assert_eq!(denied.field("cache-control"), Some("no-store"));
            assert!(tell_budget(&denied.fields()), "{denied:?}");
        }
    }
}
