//! Upgrades: the handshake is limited, and the bytes after it are not touched.

use axum::{Router, body::Body, response::IntoResponse, routing};
use http::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tollgate::RateLimitLayer;
use tollgate_tests::server::{Connection, Server, head};

use crate::per_minute;
use tollgate_tests::app::layer;

/// The handshake of RFC 6455 §1.3.
const HANDSHAKE: [(&str, &str); 4] = [
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

/// Accepts the handshake, and then sends back what comes, in capitals.
async fn shout(request: Request<Body>) -> impl IntoResponse {
    tokio::spawn(async move {
        let upgraded = hyper::upgrade::on(request).await.expect("an upgrade");
        let mut stream = TokioIo::new(upgraded);
        let mut received = [0; 64];
        loop {
            match stream.read(&mut received).await {
                Ok(0) | Err(_) => break,
                Ok(length) => {
                    let shouted = received[..length].to_ascii_uppercase();
                    stream.write_all(&shouted).await.expect("who speaks hears");
                }
            }
        }
    });
    (
        StatusCode::SWITCHING_PROTOCOLS,
        [
            (header::CONNECTION, "Upgrade"),
            (header::UPGRADE, "websocket"),
            (header::SEC_WEBSOCKET_ACCEPT, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
        ],
    )
}

async fn served(limits: RateLimitLayer) -> Server {
    Server::start(Router::new().route("/", routing::get(shout).layer(limits))).await
}

async fn handshake(server: &Server) -> Connection {
    let mut connection = server.connect().await;
    connection.write(&head("GET", "/", &HANDSHAKE)).await;
    connection
}

#[tokio::test]
async fn a_handshake_passes_with_its_fields_and_bytes_flow_both_ways() {
    let server = served(layer([per_minute("three", 3)])).await;
    let mut connection = handshake(&server).await;
    let answer = connection.answer_head().await;
    assert_eq!(answer.status, 101);
    assert_eq!(answer.header("upgrade"), Some("websocket"));
    assert_eq!(
        answer.header("sec-websocket-accept"),
        Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
    );
    assert_eq!(answer.header("ratelimit"), Some(r#""three";r=2;t=60"#));
    // More messages than there are units.
    for _ in 0..10 {
        connection.write("anybody there?").await;
        let received = connection.text_like("anybody there?").await;
        assert_eq!(received, "ANYBODY THERE?");
    }
    let second = handshake(&server).await.answer_head().await;
    assert_eq!(second.header("ratelimit"), Some(r#""three";r=1;t=60"#));
}

#[tokio::test]
async fn a_denied_handshake_is_a_429_and_open_connections_go_on() {
    let server = served(layer([per_minute("one", 1)])).await;
    let mut open = handshake(&server).await;
    assert_eq!(open.answer_head().await.status, 101);
    let denied = handshake(&server).await.answer().await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.header("retry-after"), Some("60"));
    assert_eq!(denied.header("upgrade"), None);
    open.write("still here").await;
    assert_eq!(open.text_like("still here").await, "STILL HERE");
}
