//! The program of the README: `cargo run -p tollgate-start --example hello`.

use std::net::SocketAddr;

use axum::{Router, routing::get};
use tollgate::{HOUR, MemoryStore, Quota, RateLimitLayer, Rule, SECOND, key::client_ip};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Two limits, one decision: a request that one of them denies is not counted by the other.
    let burst = Rule::new("burst", Quota::gcra(1, SECOND).burst(5)).by(client_ip());
    let hourly = Rule::new("hourly", Quota::sliding_window(1_000, HOUR)).by(client_ip());
    let limits = RateLimitLayer::new(MemoryStore::new(), [burst, hourly])?;
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(limits);

    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    // `client_ip()` is the address of the connection. Behind a proxy, tell it which one to trust.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, service).await?)
}
