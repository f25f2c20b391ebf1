//! A service behind a proxy, which says what it was sent.

use std::net::SocketAddr;

use axum::{Json, Router, extract::Request, response::IntoResponse, routing::any};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Starts a service; its address.
pub(crate) async fn upstream() -> SocketAddr {
    serve(Router::new().fallback(any(echo))).await
}

pub(crate) async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it has one");
    tokio::spawn(axum::serve(listener, router).into_future());
    address
}

async fn echo(request: Request) -> impl IntoResponse {
    let fields = request.headers().iter();
    let fields = fields.map(|(name, value)| {
        (
            name.to_string(),
            String::from_utf8_lossy(value.as_bytes()).into(),
        )
    });
    let fields: serde_json::Map<String, Value> = fields.collect();
    let said = json!({ "path": request.uri().to_string(), "headers": fields });
    ([("x-tokens-used", "3")], Json(said))
}
