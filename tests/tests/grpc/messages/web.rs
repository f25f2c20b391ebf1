//! Limits on messages in gRPC-Web.

use std::convert::Infallible;

use axum::body::Body;
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio_stream::StreamExt;
use tollgate::{MINUTE, MessageBody, MessageLimitLayer, Quota, Rule, key::constant};
use tollgate_tests::weather::{Mild, v1::weather_server::WeatherServer};
use tonic_web::GrpcWebLayer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use crate::messages::by_hand::still;

const BINARY: &str = "application/grpc-web+proto";
const TEXT: &str = "application/grpc-web-text+proto";

fn limits(limit: u64) -> MessageLimitLayer {
    let rule = Rule::new("messages", Quota::fixed_window(limit, MINUTE)).by(constant("all"));
    MessageLimitLayer::new(still(), [rule]).expect("a valid rule")
}

fn request(content_type: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post("/weather.v1.Weather/Ask")
        .header("content-type", content_type)
        .body(body.into())
        .expect("a request")
}

/// Answers each frame of a request with one frame, and the end of it, whatever it is, with trailers of its own.
async fn answers(
    request: Request<MessageBody<Body>>,
    frame: &'static [u8],
    trailers: &'static [u8],
) -> Result<Response<Body>, Infallible> {
    let content_type = request.headers()["content-type"].clone();
    let frames = request.into_body().into_data_stream();
    let frames = frames.take_while(Result::is_ok).map(move |_| frame);
    let frames = frames.chain(tokio_stream::iter([trailers]));
    let frames = frames.map(|data| Ok::<_, Infallible>(Frame::data(Bytes::from_static(data))));
    let mut response = Response::new(Body::new(StreamBody::new(frames)));
    response.headers_mut().insert("content-type", content_type);
    Ok(response)
}

const FRAME: &[u8] = b"\0\0\0\0\x02ok";
const TRAILERS: &[u8] = b"\x80\0\0\0\x0fgrpc-status:0\r\n";

#[tokio::test]
async fn a_response_that_has_begun_ends_with_a_frame_of_trailers() {
    let inner = service_fn(|request| answers(request, FRAME, TRAILERS));
    let service = limits(1).layer(inner);
    let request = request(BINARY, [0; 10].to_vec());
    let Ok(response) = service.oneshot(request).await;
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let trailers = body.strip_prefix(FRAME).expect("the answer to the first");
    let (head, fields) = trailers.split_at(5);
    assert_eq!(
        (head[0], head[4] as usize | (head[3] as usize) << 8),
        (0x80, fields.len())
    );
    let fields = std::str::from_utf8(fields).expect("fields");
    assert!(
        fields.starts_with("grpc-status:8\r\ngrpc-message:rate%20limit%20exceeded\r\n"),
        "{fields}"
    );
    assert_eq!(fields.matches("grpc-status:").count(), 1);
}

#[tokio::test]
async fn in_text_the_frame_is_base64() {
    // The same in base64.
    let inner =
        service_fn(|request| answers(request, b"AAAAAAJvaw==", b"gAAAAA9ncnBjLXN0YXR1czowDQo="));
    let service = limits(1).layer(inner);
    let request = request(TEXT, BASE64_STANDARD.encode([0; 10]));
    let Ok(response) = service.oneshot(request).await;
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let trailers = body
        .strip_prefix(b"AAAAAAJvaw==")
        .expect("the answer to the first");
    let trailers = BASE64_STANDARD.decode(trailers).expect("base64");
    assert!(trailers[5..].starts_with(b"grpc-status:8\r\n"));
}

#[tokio::test]
async fn who_stays_within_the_limit_gets_everything_as_it_was_sent() {
    let inner = service_fn(|request| answers(request, FRAME, TRAILERS));
    let Ok(response) = limits(1)
        .layer(inner)
        .oneshot(request(BINARY, vec![0; 5]))
        .await;
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, [FRAME, TRAILERS].concat());
}

#[tokio::test]
async fn trailers_that_come_in_pieces_are_passed_on_whole() {
    let pieces = [&TRAILERS[..3], &TRAILERS[3..9], &TRAILERS[9..]];
    let inner = service_fn(move |_: Request<MessageBody<Body>>| async move {
        let frames = tokio_stream::iter(pieces)
            .map(|data| Ok::<_, Infallible>(Frame::data(Bytes::from_static(data))));
        Ok::<_, Infallible>(Response::new(Body::new(StreamBody::new(frames))))
    });
    let Ok(response) = limits(1)
        .layer(inner)
        .oneshot(request(BINARY, vec![0; 5]))
        .await;
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, TRAILERS);
}

#[tokio::test]
async fn a_call_that_is_denied_before_its_response_is_answered_in_its_head() {
    let reads = |request: Request<MessageBody<Body>>| async move {
        let _ = request.into_body().collect().await;
        Ok::<_, Infallible>(Response::new(Body::empty()))
    };
    for content_type in [BINARY, TEXT] {
        let body = match content_type {
            TEXT => BASE64_STANDARD.encode([0; 10]).into_bytes(),
            _ => vec![0; 10],
        };
        let service = limits(1).layer(service_fn(reads));
        let Ok(response) = service.oneshot(request(content_type, body)).await;
        assert_eq!(response.headers()["grpc-status"], "8");
        assert_eq!(response.headers()["content-type"], content_type);
        assert!(http_body::Body::is_end_stream(response.body()));
    }
}

#[tokio::test]
async fn a_text_that_is_not_base64_is_an_error() {
    let reads = |request: Request<MessageBody<Body>>| async move {
        let read = request.into_body().collect().await;
        Ok::<_, Infallible>(Response::new(Body::from(read.unwrap_err().to_string())))
    };
    let service = limits(1).layer(service_fn(reads));
    let Ok(response) = service.oneshot(request(TEXT, "AAA\nAAAA")).await;
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "a stream of gRPC-Web in text is not base64");
}

/// What the browser's client reads of a text: the frames.
fn frames(text: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let quads = text.chunks(4);
    let bytes: Vec<u8> = quads
        .flat_map(|quad| BASE64_STANDARD.decode(quad).expect("base64"))
        .collect();
    let mut rest = &bytes[..];
    let mut frames = Vec::new();
    while let [flags, a, b, c, d, after @ ..] = rest {
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        frames.push((*flags, after[..length].to_vec()));
        rest = &after[length..];
    }
    frames
}

/// Three questions in text, where two are allowed.
async fn ask_in_text<S, B>(service: S) -> Vec<(u8, Vec<u8>)>
where
    S: Service<Request<tonic::body::Body>, Response = Response<B>, Error = Infallible>,
    B: http_body::Body<Data = Bytes, Error: std::fmt::Debug>,
{
    let mut request = request(TEXT, BASE64_STANDARD.encode([0; 15]));
    request
        .headers_mut()
        .insert("accept", http::HeaderValue::from_static(TEXT));
    let Ok(response) = service.oneshot(request.map(tonic::body::Body::new)).await;
    assert_eq!(response.headers()["content-type"], TEXT);
    frames(&response.into_body().collect().await.unwrap().to_bytes())
}

/// Two reports, and the status.
fn assert_two_reports(frames: &[(u8, Vec<u8>)]) {
    let flags: Vec<u8> = frames.iter().map(|(flags, _)| *flags).collect();
    assert_eq!(flags, [0, 0, 0x80]);
    let trailers = String::from_utf8_lossy(&frames[2].1);
    assert!(trailers.contains("grpc-status:8\r\n"), "{trailers}");
}

#[tokio::test]
async fn it_works_inside_the_layer_of_tonic_web() {
    let service = ServiceBuilder::new()
        .layer(GrpcWebLayer::new())
        .layer(limits(2))
        .service(WeatherServer::new(Mild::default()));
    assert_two_reports(&ask_in_text(service).await);
}

#[tokio::test]
async fn it_works_outside_of_the_layer_of_tonic_web() {
    let service = ServiceBuilder::new()
        .layer(limits(2))
        .layer(GrpcWebLayer::new())
        .service(WeatherServer::new(Mild::default()));
    assert_two_reports(&ask_in_text(service).await);
}
