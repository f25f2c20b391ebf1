//! Limits on messages in gRPC-Web: `tonic_web::GrpcWebLayer` outside of the layer.

use std::convert::Infallible;

use axum::body::Body;
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::BodyExt;
use tollgate::{
    MINUTE, Quota, Rule,
    key::constant,
    message::{MessageBody, MessageLimitLayer},
    rejection::Protocol,
};
use tollgate_tests::{
    events::Events,
    weather::{Mild, v1::weather_server::WeatherServer},
};
use tonic_web::GrpcWebLayer;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

use crate::grpc::messages::by_hand::still;

const BINARY: &str = "application/grpc-web+proto";
const TEXT: &str = "application/grpc-web-text+proto";

fn limits(limit: u64) -> MessageLimitLayer {
    let rule = Rule::new("messages", Quota::fixed_window(limit, MINUTE)).by(constant("all"));
    MessageLimitLayer::new(still(), [rule]).expect("a valid rule")
}

/// A request with as many empty messages.
fn request(content_type: &'static str, messages: usize) -> Request<Body> {
    let bytes = vec![0; 5 * messages];
    let body = match content_type {
        TEXT => BASE64_STANDARD.encode(bytes).into_bytes(),
        _ => bytes,
    };
    Request::post("/weather.v1.Weather/Exchange")
        .header(header::CONTENT_TYPE, content_type)
        .header(header::ACCEPT, content_type)
        .body(body.into())
        .expect("a request")
}

/// The frames of a response: flags and content, as a browser's client reads them.
fn frames(content_type: &str, body: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let decode = |quad| BASE64_STANDARD.decode(quad).expect("base64");
    let bytes = match content_type {
        TEXT => body.chunks(4).flat_map(decode).collect(),
        _ => body.to_vec(),
    };
    let mut rest = &bytes[..];
    let mut frames = Vec::new();
    while let [flags, a, b, c, d, after @ ..] = rest {
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        frames.push((*flags, after[..length].to_vec()));
        rest = &after[length..];
    }
    frames
}

#[tokio::test]
async fn a_response_that_has_begun_ends_with_the_status_of_the_denial() {
    for content_type in [BINARY, TEXT] {
        let service = ServiceBuilder::new()
            .layer(GrpcWebLayer::new())
            .layer(limits(2))
            .service(WeatherServer::new(Mild::default()));
        let Ok(response) = service.oneshot(request(content_type, 3)).await;
        assert_eq!(response.headers()[header::CONTENT_TYPE], content_type);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        // Two reports, and the trailers.
        let frames = frames(content_type, &body);
        let flags: Vec<u8> = frames.iter().map(|(flags, _)| *flags).collect();
        assert_eq!(flags, [0, 0, 0x80]);
        let trailers = String::from_utf8_lossy(&frames[2].1);
        assert!(trailers.contains("grpc-status:8\r\n"), "{trailers}");
        assert_eq!(trailers.matches("grpc-status:").count(), 1);
    }
}

/// Reads the whole stream before it responds.
async fn reads<B>(request: Request<MessageBody<B>>) -> Result<Response<Body>, Infallible>
where
    MessageBody<B>: http_body::Body<Data = Bytes>,
{
    let complete = request.into_body().collect().await.is_ok();
    let mut response = Response::new(Body::empty());
    let status = if complete { "0" } else { "13" };
    let status = HeaderValue::from_static(status);
    response.headers_mut().insert("grpc-status", status);
    Ok(response)
}

#[tokio::test]
async fn a_call_denied_before_its_response_has_the_status_in_its_head() {
    for content_type in [BINARY, TEXT] {
        let mut service = ServiceBuilder::new()
            .layer(GrpcWebLayer::new())
            .layer(limits(1))
            .service(service_fn(reads));
        let Ok(denied) = service.call(request(content_type, 2)).await;
        assert_eq!(denied.headers()["grpc-status"], "8");
        assert_eq!(denied.headers()["grpc-message"], "rate limit exceeded");
        assert_eq!(denied.headers()[header::CONTENT_TYPE], content_type);
    }
}

#[tokio::test]
async fn grpc_web_that_is_not_translated_is_rejected_and_reported_once() {
    let events = Events::listen();
    for layer in [limits(9), limits(9).protocol(Protocol::Auto)] {
        let handle = layer.handle();
        let mut service = ServiceBuilder::new().layer(layer).service(service_fn(
            |_: Request<MessageBody<Body>>| async {
                panic!("it is not called") as Result<Response<Body>, Infallible>
            },
        ));
        for content_type in [BINARY, TEXT] {
            let Ok(rejected) = service.call(request(content_type, 1)).await;
            assert_eq!(rejected.headers()["grpc-status"], "12");
            assert_eq!(rejected.headers()[header::CONTENT_TYPE], content_type);
            // Other rules are no reason to report it again.
            let rule = Rule::new("messages", Quota::fixed_window(8, MINUTE)).by(constant("all"));
            handle.replace([rule]).expect("a valid rule");
        }
    }
    let reported = events.recorded();
    // Once per layer.
    assert_eq!(reported.len(), 2, "{reported:?}");
    assert!(reported[0].fields.contains("GrpcWebLayer"), "{reported:?}");
}
