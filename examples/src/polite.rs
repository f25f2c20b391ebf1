//! A small limited service, and a client that obeys its limit without being configured for it.

use axum::{Router, body::Body, routing::get};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tollgate::{MemoryStore, Quota, RateLimitLayer, Rule, RuleError, SECOND, key::client_ip};
use tollgate_client::{ClientRateLimit, ClientRateLimitLayer, ReplayBody};
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

/// hyper's client behind the layer: it reads in each response what is left, and waits if nothing is.
#[must_use]
pub fn polite() -> ClientRateLimit<Client<HttpConnector, ReplayBody<Body>>> {
    ServiceBuilder::new()
        .layer(ClientRateLimitLayer::new())
        .service(Client::builder(TokioExecutor::new()).build(HttpConnector::new()))
}
