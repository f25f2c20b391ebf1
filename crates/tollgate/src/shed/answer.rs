//! The answer to a request that is shed.

use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderValue, Method, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE},
};

use crate::{
    head::Head, header::retry_after, protocol::WireProtocol, rate_limit::Refund,
    rejection::unavailable,
};

/// The problem type of the `RateLimit` drafts for a service that has less capacity than usual.
const PROBLEM: &[u8] = br#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporary reduced capacity","status":503}"#;

/// 503, or `UNAVAILABLE` in gRPC. Limits outside of the layer give their units back.
pub(super) fn answer(head: &Head<'_>, protocol: WireProtocol, wait: Duration) -> Response<Bytes> {
    let mut response = match protocol {
        WireProtocol::Http => problem(head),
        grpc => unavailable(head, grpc, wait),
    };
    retry_after::write(response.headers_mut(), wait);
    response.extensions_mut().insert(Refund);
    response
}

fn problem(head: &Head<'_>) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(PROBLEM));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let fields = response.headers_mut();
    fields.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if head.method == Method::HEAD {
        // The length for GET (RFC 9110 §8.6).
        fields.insert(CONTENT_LENGTH, HeaderValue::from(PROBLEM.len()));
        response.body_mut().clear();
    }
    response
}
