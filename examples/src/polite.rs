//! A small limited service, and a client that keeps to its limit without having been told.

use axum::{Router, body::Body, routing::get};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tollgate::{
    MemoryStore, Quota, RateLimitLayer, Rule, RuleError, SECOND,
    client::{Pace, PaceLayer, ReplayBody},
    key::client_ip,
};
use tower::ServiceBuilder;

/// A service that takes five requests a second from each address.
///
/// # Errors
///
/// None: the rule is valid.
pub fn limited() -> Result<Router, RuleError> {
    let rule = Rule::new("per-ip", Quota::gcra(5, SECOND)).by(client_ip());
    let limits = RateLimitLayer::new(MemoryStore::new(), [rule])?;
    Ok(Router::new().route("/", get(|| async { "hello\n" }).route_layer(limits)))
}

/// hyper's client with the layer in front: it reads in each answer what is left, and waits where nothing is.
#[must_use]
pub fn polite() -> Pace<Client<HttpConnector, ReplayBody<Body>>> {
    ServiceBuilder::new()
        .layer(PaceLayer::new())
        .service(Client::builder(TokioExecutor::new()).build(HttpConnector::new()))
}
