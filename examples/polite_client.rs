//! A client that sends 30 requests as fast as it may, to a service that takes five a second: `cargo run --example
//! polite_client`.
//!
//! The client is not configured for the limit. It reads it in the responses, and is never denied.

#![expect(clippy::print_stdout, reason = "examples print to the terminal")]

use std::{error::Error, net::SocketAddr};

use axum::{Router, body::Body, routing::get};
use http::{Request, StatusCode};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::{net::TcpListener, time::Instant};
use tollgate::{MemoryStore, Quota, RateLimitLayer, Rule, RuleError, SECOND, key::client_ip};
use tollgate_client::{ClientRateLimitLayer, ReplayBody};
use tower::{ServiceBuilder, ServiceExt};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let uri = format!("http://{}/", listener.local_addr()?);
    let service = limited()?.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });

    // hyper's client behind the layer: it reads in each response what is left, and waits if nothing is.
    let http = Client::builder(TokioExecutor::new()).build_http::<ReplayBody<Body>>();
    let client = ServiceBuilder::new()
        .layer(ClientRateLimitLayer::new())
        .service(http);
    let start = Instant::now();
    let mut denied = 0;
    for number in 1..=30 {
        let before = Instant::now();
        let request = Request::get(&uri).body(Body::empty())?;
        let answer = client.clone().oneshot(request).await?;
        denied += u32::from(answer.status() == StatusCode::TOO_MANY_REQUESTS);
        let left = answer.headers().get("ratelimit");
        println!(
            "request {number:2} took {:4} ms: {}, {}",
            before.elapsed().as_millis(),
            answer.status(),
            left.map_or("nothing said", |left| left.to_str().unwrap_or("?")),
        );
    }
    println!("30 requests in {:.1?}, {denied} denied", start.elapsed());
    Ok(())
}

/// A service that takes five requests a second from each address.
fn limited() -> Result<Router, RuleError> {
    let rule = Rule::new("per-ip", Quota::gcra(5, SECOND)).by(client_ip());
    let limits = RateLimitLayer::new(MemoryStore::new(), [rule])?;
    Ok(Router::new().route("/", get(|| async { "hello\n" }).route_layer(limits)))
}
