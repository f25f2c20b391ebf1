//! What axum knows about a request.

use std::net::SocketAddr;

use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, Request, connect_info::MockConnectInfo},
    middleware::{Next, from_fn},
    routing::{MethodRouter, get},
};
use tollgate::key::{
    KeyBuf, KeyExtractor, NoKey, PartKind, PeerAddr, client_ip, matched_path, path_parameter,
};
use tower::ServiceExt;

use crate::support::{empty, key, parts, resolved};

const PARAMETER: PartKind = PartKind::PATH_PARAMETER;

#[derive(Clone)]
struct Found(Result<KeyBuf, NoKey>);

/// Adds a layer that leaves in the response what the extractor finds in the request.
fn watched(app: Router, extractor: impl KeyExtractor + Clone) -> Router {
    app.layer(from_fn(move |request: Request, next: Next| {
        let extractor = extractor.clone();
        async move {
            let (head, body) = request.into_parts();
            let found = key(&extractor, &head);
            let mut response = next.run(Request::from_parts(head, body)).await;
            response.extensions_mut().insert(Found(found));
            response
        }
    }))
}

async fn send(app: Router, uri: &str) -> Result<KeyBuf, NoKey> {
    let request = Request::get(uri).body(Body::empty()).expect("a request");
    let response = app.oneshot(request).await.expect("a router never fails");
    let found = response.extensions().get::<Found>();
    found.expect("the layer has run").0.clone()
}

fn handler() -> MethodRouter {
    get(|| async { "" })
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

#[tokio::test]
async fn the_pattern_of_the_route_is_the_key() {
    let app = Router::new().nest("/v1", Router::new().route("/users/{id}", handler()));
    let app = watched(app, matched_path());
    let expected = parts([(PartKind::ROUTE, "/v1/users/{id}")]);
    assert_eq!(send(app.clone(), "/v1/users/1").await, Ok(expected.clone()));
    assert_eq!(send(app, "/v1/users/%32").await, Ok(expected));
}

#[test]
fn outside_of_the_router_the_error_names_the_right_place() {
    for found in [
        key(&matched_path(), &empty()),
        key(&path_parameter("id"), &empty()),
    ] {
        let Err(NoKey::Misconfigured(text)) = found else {
            panic!("there is no router")
        };
        assert!(
            text.contains("Router::route_layer") && text.contains("Router::layer"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_fallback_has_no_route_and_no_parameters() {
    let app = Router::new().fallback(handler());
    let Err(NoKey::Misconfigured(text)) = send(watched(app.clone(), matched_path()), "/a").await
    else {
        panic!("a fallback has no route")
    };
    assert!(text.contains("fallback"), "{text}");
    assert_eq!(
        send(watched(app, path_parameter("id")), "/a").await,
        Err(NoKey::Absent)
    );
}

#[tokio::test]
async fn a_parameter_of_the_path_is_the_key_in_every_spelling() {
    let app = Router::new().route("/users/{id}/{*rest}", handler());
    let app = watched(app, path_parameter("id"));
    let expected = parts([(PARAMETER, "id"), (PARAMETER, "a b")]);
    assert_eq!(
        send(app.clone(), "/users/a%20b/x").await,
        Ok(expected.clone())
    );
    assert_eq!(send(app, "/users/%61%20%62/x/y").await, Ok(expected));
}

#[tokio::test]
async fn parameters_of_an_outer_router_are_found_inside() {
    let inner = watched(
        Router::new().route("/orders/{id}", handler()),
        path_parameter("tenant"),
    );
    let app = Router::new().nest("/tenants/{tenant}", inner);
    let expected = parts([(PARAMETER, "tenant"), (PARAMETER, "acme")]);
    assert_eq!(send(app, "/tenants/acme/orders/1").await, Ok(expected));
}

#[tokio::test]
async fn a_parameter_that_is_no_text_is_no_key() {
    let app = Router::new().route("/users/{id}", handler());
    assert_eq!(
        send(watched(app, path_parameter("id")), "/users/%ff").await,
        Err(NoKey::Absent)
    );
}

#[test]
fn a_parameter_is_named_without_braces() {
    for name in ["", "{id}", "*rest", "/id"] {
        let text = path_parameter(name).validate().expect_err("no name");
        assert!(text.contains(&format!("{name:?}")), "{text}");
    }
}

#[test]
fn our_own_peer_address_counts_before_axum() {
    let mut head = empty();
    head.extensions
        .insert(MockConnectInfo(address("192.0.2.1:1")));
    assert_eq!(resolved(&client_ip(), &head), "192.0.2.1");
    head.extensions
        .insert(ConnectInfo(address("[::ffff:192.0.2.2]:1")));
    assert_eq!(resolved(&client_ip(), &head), "192.0.2.2");
    head.extensions.insert(PeerAddr(address("192.0.2.3:1")));
    assert_eq!(resolved(&client_ip(), &head), "192.0.2.3");
}
