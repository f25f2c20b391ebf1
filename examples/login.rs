//! A log-in that is limited by address before the body is read, and by account once the body has named it. Of an address only
//! failures count: `cargo run --example login`.

use std::error::Error;

use axum::{Form, Router, routing::post};
use http::StatusCode;
use serde::Deserialize;
use tollgate::{
    Admission, Denied, Key, MINUTE, MemoryStore, Protocol, Quota, RateLimitLayer, Rule,
    key::client_ip,
};
use tollgate_examples::serve::serve;

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
    serve(app, |address| {
        format!(
            "Try, six times:\n  curl -i http://{address}/login -d account=ali -d password=guess\n"
        )
    })
    .await
}
