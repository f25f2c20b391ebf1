//! Rules on paths, where paths are rewritten.

use axum::{Router, routing::any};
use tollgate::{
    RateLimitLayer, RequestRule,
    condition::{path, path_under},
    key::{self, computed},
    siblings::PathPattern,
};
use tollgate_tests::app::{all, layer, per_minute, status};
use tower::Layer as _;
use tower_http::normalize_path::NormalizePathLayer;

fn on(pattern: &str) -> RequestRule {
    all(per_minute("login", 1)).when(path(pattern).expect("a pattern"))
}

/// Answers everything, inside of the layer.
fn inside(layer: RateLimitLayer) -> Router {
    Router::new().route("/login", any(|| async {})).layer(layer)
}

/// Behind an outer router, whose paths are as clients send them.
fn normalized(inner: Router) -> Router {
    Router::new().fallback_service(NormalizePathLayer::trim_trailing_slash().layer(inner))
}

async fn is_limited_once(app: &Router, paths: &[&str]) {
    for (index, path) in paths.iter().enumerate() {
        let expected = if index == 0 { 200 } else { 429 };
        assert_eq!(status(app, *path).await, expected, "{path}");
    }
}

#[tokio::test]
async fn a_rule_on_a_path_counts_what_the_handler_serves() {
    let spellings = ["/login", "/login/", "//login", "/login//"];
    is_limited_once(&normalized(inside(layer([on("/login")]))), &spellings).await;
    // Many rules are found by an index.
    let others = (0..20).map(|n| {
        let name: &'static str = Box::leak(format!("other-{n}").into());
        all(per_minute(name, 1)).when(path(&format!("/other/{n}")).expect("a pattern"))
    });
    let many = layer(others.chain([on("/login")]));
    is_limited_once(&normalized(inside(many)), &spellings).await;
}

#[tokio::test]
async fn a_nested_rule_counts_with_the_prefix_wherever_the_rewrite_is() {
    let nested = |inner| Router::new().nest("/api/{tenant}", inner);
    let rewritten_within = Router::new().nest_service(
        "/api/{tenant}",
        NormalizePathLayer::trim_trailing_slash().layer(inside(layer([on("/api/{tenant}/login")]))),
    );
    is_limited_once(&rewritten_within, &["/api/acme/login", "/api/acme/login/"]).await;
    let rewritten_before = normalized(nested(inside(layer([on("/api/{tenant}/login")]))));
    is_limited_once(&rewritten_before, &["/api/acme/login", "//api/acme/login/"]).await;
    // A key from the path, too.
    let pattern = PathPattern::new("/api/{tenant}/login").expect("a pattern");
    let by_tenant =
        computed(move |head| Some(tollgate::Key::of(&*pattern.parameter(head, "tenant")?)));
    let by_tenant = layer([per_minute("login", 1).by(by_tenant)]);
    let app = normalized(nested(inside(by_tenant)));
    is_limited_once(&app, &["/api/acme/login/", "//api/acme/login"]).await;
    assert_eq!(status(&app, "//api/other/login").await, 200);
}

#[tokio::test]
async fn a_path_has_its_prefix_inside_of_a_nested_router_and_around_it() {
    let under = |prefix| all(per_minute("login", 1)).when(path_under(prefix));
    for (rule, statuses) in [
        (on("/api/login"), [200, 429, 200]),
        (on("/login"), [200; 3]),
        (under("/api"), [200, 429, 200]),
        (under("/login"), [200; 3]),
        (per_minute("login", 1).by(key::path()), [200, 429, 200]),
    ] {
        let login = Router::new().route("/login", any(|| async {}));
        let nested = |inner: Router| Router::new().nest("/api", inner.clone()).nest("/b", inner);
        let limits = || layer([rule.clone()]);
        for app in [
            nested(login.clone().layer(limits())),
            nested(login).layer(limits()),
        ] {
            for (path, expected) in ["/api/login", "/api/login", "/b/login"]
                .iter()
                .zip(statuses)
            {
                assert_eq!(status(&app, *path).await, expected, "{rule:?} {path}");
            }
        }
    }
}
