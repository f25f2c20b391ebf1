//! A log-in that is limited by address before the body is read, and by account once the body has named it. Of an address only
//! failures count: `cargo run --example login`.

#![expect(clippy::print_stdout, reason = "examples print to the terminal")]

use std::{error::Error, net::SocketAddr};

use axum::{Form, Router, routing::post};
use http::StatusCode;
use serde::Deserialize;
use tokio::net::TcpListener;
use tollgate::{
    Admission, Denied, Key, MINUTE, MemoryStore, Protocol, Quota, RateLimitLayer, Rule,
    key::client_ip,
};

#[derive(Deserialize)]
struct Login {
    account: String,
    password: String,
}

async fn login(admission: Admission, Form(login): Form<Login>) -> Result<StatusCode, Denied> {
    // The account is only known now. Denied, it answers as the layer does.
    let _ = admission
        .acquire("login-per-account", &Key::of(&login.account))
        .await?;
    Ok(if login.password == "open sesame" {
        StatusCode::OK
    } else {
        StatusCode::UNAUTHORIZED
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limits = RateLimitLayer::new(
        MemoryStore::new(),
        [
            Rule::new("failures-per-ip", Quota::sliding_log(20, MINUTE))
                .by(client_ip())
                .count_if(|response| response.is_failure()),
            Rule::new("login-per-account", Quota::sliding_log(5, MINUTE)).by_handler(),
        ],
    )?
    .hide_quota()
    .protocol(Protocol::Http);
    let app = Router::new().route("/login", post(login).route_layer(limits));
    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".to_owned());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    let address = listener.local_addr()?;
    println!("Try, six times:\n  curl -i http://{address}/login -d account=ali -d password=guess");
    // Client IP addresses come from the socket, so the server has to hand them to the requests.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}
