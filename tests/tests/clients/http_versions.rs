//! The same over HTTP/1.1 and HTTP/2.

use axum::{
    Router,
    response::{IntoResponse, Redirect},
    routing,
};
use http::{HeaderMap, Response, StatusCode, header};
use tollgate::{RateLimitLayer, Rejection};
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
async fn a_redirect_is_followed_with_nothing_left() {
    let arrived = routing::get(|| async { "arrived" });
    // A server of its own: Debian's curl 7.88 cannot use a connection of HTTP/2 twice (curl issue 10634).
    let there = Server::start(Router::new().route("/", arrived)).await;
    let location = format!("http://{}/", there.address());
    for version in BOTH {
        let location = location.clone();
        let moved = routing::get(|| async move { Redirect::permanent(&location) });
        let app = Router::new().route("/", moved.layer(layer([per_minute("one", 1)])));
        let here = Server::start(app).await;
        let answer = curl(version, here.address(), "/", &["--location"]).await;
        assert_eq!(answer.statuses(), ["308", "200"], "{version:?}");
        assert_eq!(answer.body, b"arrived");
        assert!(!tell_budget(&answer.first_fields()), "{answer:?}");
        // It was still counted.
        let again = curl(version, here.address(), "/", &["--location"]).await;
        assert_eq!(again.statuses(), ["429"], "{version:?}");
    }
}

#[tokio::test]
async fn a_304_has_the_current_remaining_units() {
    async fn page(headers: HeaderMap) -> impl IntoResponse {
        let etag = [(header::ETAG, r#""v1""#)];
        match headers.get(header::IF_NONE_MATCH) {
            Some(known) if known == r#""v1""# => (StatusCode::NOT_MODIFIED, etag, ""),
            _ => (StatusCode::OK, etag, "a page"),
        }
    }
    for version in BOTH {
        let app = Router::new().route("/", routing::get(page));
        let server = Server::start(app.layer(layer([per_minute("nine", 9)]))).await;
        let known = r#"If-None-Match: "v1""#;
        let first = curl(version, server.address(), "/", &[]).await;
        let second = curl(version, server.address(), "/", &["--header", known]).await;
        assert_eq!((first.status(), second.status()), (200, 304));
        assert_eq!(first.field("ratelimit"), Some(r#""nine";r=8;t=60"#));
        assert_eq!(second.field("ratelimit"), Some(r#""nine";r=7;t=60"#));
        assert!(second.body.is_empty());
    }
}

#[tokio::test]
async fn a_denial_comes_before_a_precondition() {
    for version in BOTH {
        let server = served(layer([per_minute("one", 1)])).await;
        curl(version, server.address(), "/", &[]).await;
        for condition in ["If-None-Match: *", r#"If-Match: "v1""#] {
            let denied = curl(version, server.address(), "/", &["--header", condition]).await;
            assert_eq!(denied.status(), 429, "{version:?} {condition}");
        }
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

#[tokio::test]
async fn a_larger_retry_after_from_inside_stays() {
    let busy = || async { (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "120")]) };
    let longer = Rejection::custom(|denial| {
        let response = Response::builder().status(denial.status());
        let response = response.header(header::RETRY_AFTER, "120");
        response.body("later".into()).unwrap()
    });
    for version in BOTH {
        let limits = layer([per_minute("one", 1)]).rejection(longer.clone());
        let app = Router::new().route("/", routing::get(busy)).layer(limits);
        let server = Server::start(app).await;
        for status in [503, 429] {
            let answer = curl(version, server.address(), "/", &[]).await;
            assert_eq!(answer.status(), status, "{version:?}");
            assert_eq!(answer.field("retry-after"), Some("120"), "{version:?}");
        }
    }
}
