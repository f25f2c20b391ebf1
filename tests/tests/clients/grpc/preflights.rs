//! What looks like a CORS preflight, and is a call.

use bytes::Bytes;
use http::{HeaderName, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use tollgate::RateLimitLayer;
use tollgate_tests::weather::Mild;
use tonic::body::Body;
use tower::{Service, ServiceExt};

use crate::grpc::{serve, used_up};

const UNARY: &str = "/weather.v1.Weather/Current";
const STREAM: &str = "/weather.v1.Weather/Record";

/// A city without a name.
fn message() -> Body {
    Body::new(Full::new(Bytes::from_static(&[0; 5])))
}

/// OPTIONS with the fields of a preflight, and these: how it is answered, and how many calls get to the service.
async fn send(
    layer: RateLimitLayer,
    path: &str,
    fields: &[(HeaderName, &str)],
    body: Body,
) -> (StatusCode, u64) {
    let service = Mild::default();
    let server = serve(layer, &service).await;
    let mut channel = server.channel().await;
    let mut call = Request::options(path)
        .header("origin", "https://example.com")
        .header("access-control-request-method", "POST");
    for (name, value) in fields {
        call = call.header(name, *value);
    }
    let call = call.body(body).expect("a request");
    let ready = channel.ready().await.expect("a connection");
    let response = ready.call(call).await.expect("an answer");
    let status = response.status();
    let _ = response.into_body().collect().await;
    (status, service.calls())
}

const DENIED: (StatusCode, u64) = (StatusCode::TOO_MANY_REQUESTS, 0);

#[tokio::test]
async fn a_call_with_the_fields_of_a_preflight_is_counted() {
    for path in [UNARY, STREAM] {
        assert_eq!(send(used_up(), path, &[], message()).await, DENIED);
    }
}

#[tokio::test]
async fn an_empty_stream_with_a_grpc_content_type_is_counted() {
    for kind in ["application/grpc", "application/grpc-web+proto", ""] {
        let kind = [(http::header::CONTENT_TYPE, kind)];
        assert_eq!(send(used_up(), STREAM, &kind, Body::empty()).await, DENIED);
    }
}

#[tokio::test]
async fn a_preflight_of_a_browser_passes_uncounted() {
    // Firefox sends `te` with every request of HTTP/2.
    for fields in [&[][..], &[(http::header::TE, "trailers")]] {
        let (status, calls) = send(used_up(), UNARY, fields, Body::empty()).await;
        assert_eq!((status, calls), (StatusCode::OK, 0));
    }
}

#[tokio::test]
async fn an_empty_stream_without_headers_is_counted_only_with_count_preflight() {
    let (_, calls) = send(used_up(), STREAM, &[], Body::empty()).await;
    assert_eq!(calls, 1);
    let counted = used_up().count_preflight();
    assert_eq!(send(counted, STREAM, &[], Body::empty()).await, DENIED);
}
