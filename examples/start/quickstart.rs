//! Two routes, each with its limits: `cargo run -p tollgate-start --example quickstart`.

#![expect(clippy::print_stdout, reason = "examples print to the terminal")]

use std::net::SocketAddr;

use axum::{
    Router,
    routing::{get, post},
};
use tollgate::{
    HOUR, MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, RuleError, SECOND, key::client_ip,
    rejection::Protocol,
};

/// The routes with their limits.
fn app() -> Result<Router, RuleError> {
    let store = MemoryStore::new();
    // One layer, two rules: a request passes both, or neither is debited.
    let search = RateLimitLayer::new(
        store.clone(),
        [
            Rule::new("search-burst", Quota::token_bucket(20).refill(10, SECOND)).by(client_ip()),
            Rule::new("search-hourly", Quota::sliding_window(5_000, HOUR)).by(client_ip()),
        ],
    )?
    // There is no gRPC here: no client gets a 200 for a 429 by saying that it speaks it.
    .protocol(Protocol::Http);
    // Never more than 5 in any minute, and no word about what is left.
    let login = RateLimitLayer::new(
        store,
        [Rule::new("login-per-ip", Quota::sliding_log(5, MINUTE)).by(client_ip())],
    )?
    .hide_quota()
    .protocol(Protocol::Http);

    Ok(Router::new()
        .route(
            "/search",
            get(|| async { "nothing found\n" }).route_layer(search),
        )
        .route("/login", post(|| async { "welcome\n" }).route_layer(login)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".to_owned());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    // Addresses come from the socket. Behind a proxy, `client_ip()` has to be told so.
    let service = app()?.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}
