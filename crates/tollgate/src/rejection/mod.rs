//! Rejections: the response made from a denial.
//!
//! | [`Rejection`] | body |
//! | --- | --- |
//! | [`problem`](Rejection::problem), the default | `application/problem+json` (RFC 9457), with the problem type of the `RateLimit` drafts |
//! | [`json`](Rejection::json) | a small JSON object |
//! | [`json_template`](Rejection::json_template) | JSON with your names |
//! | [`text`](Rejection::text) | a sentence |
//! | [`empty`](Rejection::empty) | nothing |
//! | [`custom`](Rejection::custom) | the response of your closure |
//!
//! # Status
//!
//! | why ([`Denial::reason`]) | status |
//! | --- | --- |
//! | a quota is exceeded, no slot is free, the queue is full, the wait is over, or the cost never fits | 429, or the one given to the layer |
//! | the store or a look-up failed, and the rule denies in this case | 503 |
//! | there is no key, and the rule rejects in this case | the one given to the rule |
//!
//! # Header fields
//!
//! The layer adds `Retry-After` where the time is known, and the [quota](crate::header) where a rule has counted, also to custom
//! rejections. While the store fails, neither is known. The built-in ones have `Cache-Control: no-store` as well, for caches that
//! store a 429 against RFC 6585. The response to a HEAD request has no body.
//!
//! # gRPC
//!
//! A gRPC call gets a gRPC response, whatever the [`Rejection`] for HTTP: a POST with the content type `application/grpc` or one
//! of gRPC-Web (override it with [`RateLimitLayer::protocol`](crate::RateLimitLayer::protocol)). The response is HTTP 200 and
//! *Trailers-Only*: all of it is in the header fields, so that a client may still retry.
//!
//! | why | status | details | `grpc-retry-pushback-ms` |
//! | --- | --- | --- | --- |
//! | a quota is exceeded | 8 `RESOURCE_EXHAUSTED` | `RetryInfo` (the exact time), `QuotaFailure` (a violation for each rule that denied), `ErrorInfo` (`RATE_LIMIT_EXCEEDED`) | the time, rounded up |
//! | no slot is free | 8 `RESOURCE_EXHAUSTED` | `QuotaFailure`, `ErrorInfo` (`CONCURRENCY_LIMIT_EXCEEDED`); `RetryInfo` if the quota has a [typical](crate::Quota::typically) hold time | with it, the time |
//! | as many requests wait as may, or the wait is over | 8 `RESOURCE_EXHAUSTED` | as for a quota, with `WAIT_QUEUE_FULL` or `WAIT_EXPIRED` | the time, if it is known |
//! | the cost never fits | 8 `RESOURCE_EXHAUSTED` | `QuotaFailure`, `ErrorInfo` (`COST_EXCEEDS_LIMIT`) | -1: do not retry |
//! | the store or a look-up failed, and the rule denies in this case | 14 `UNAVAILABLE` | | |
//! | there is no key, and the rule rejects in this case | 16 `UNAUTHENTICATED`; for a rule's 400 or 422 3 `INVALID_ARGUMENT`, 403 7, 404 5, 429 8, 500 and above 14 | | |
//!
//! `Retry-After` and the quota's fields are metadata. With a [hidden quota](crate::RateLimitLayer::hide_quota), `RetryInfo` is the only
//! detail. The domain of `ErrorInfo` is the called service. The details stay below 4 KiB, because clients accept 8 KiB of fields.
//!
//! gRPC-Web gets the same response with its own content type; the layer works inside and outside of tonic's `GrpcWebLayer`. A
//! browser sees the status only if CORS exposes it: see [`exposed_headers`](crate::header::exposed_headers).
//!
//! ```
//! use http::{Request, Response};
//! use tollgate::{MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, key::grpc_method};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let rule = Rule::new("per-method", Quota::fixed_window(1, MINUTE)).by(grpc_method());
//! // Around a `tonic::transport::Server` just the same: `Server::builder().layer(limits)`.
//! let service = ServiceBuilder::new()
//!     .layer(RateLimitLayer::new(MemoryStore::new(), [rule])?)
//!     .service(service_fn(async |_| Ok::<_, std::convert::Infallible>(Response::new(String::new()))));
//! let call = async || {
//!     let call = Request::post("/weather.v1.Weather/Current").header("content-type", "application/grpc");
//!     service.clone().oneshot(call.body(String::new()).unwrap()).await.unwrap()
//! };
//! call().await;
//! let denied = call().await;
//! assert_eq!(denied.status(), 200);
//! assert_eq!(denied.headers()["grpc-status"], "8");
//! assert_eq!(denied.headers()["grpc-message"], "rate limit exceeded");
//! assert!(denied.headers().contains_key("grpc-retry-pushback-ms"));
//! # Ok(())
//! # }
//! ```
//!
//! # The body
//!
//! The names and numbers of the exceeded rules, and the retry time in milliseconds, if a retry helps. Never the key, the address
//! or a header of the request. With a hidden quota, the retry time only.
//!
//! ```text
//! {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,
//!  "detail":"Policy \"per-min\" allows 100 requests per 60 s.","violated-policies":["per-min"],"retry_after_ms":16001}
//! ```
//!
//! If no slot is free, the queue is full or the wait is over, the problem has a `reason` as well: `slots`, `queue_full` or
//! `wait_expired`.
//!
//! ```text
//! {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,
//!  "detail":"Policy \"exports\" allows 3 requests at once.","violated-policies":["exports"],"reason":"slots"}
//! ```
//!
//! Who is blocked gets a 403, or [what the rule says](crate::RequestRule::blocked_status), and reads nothing of the rules.
//!
//! ```text
//! {"type":"about:blank","title":"Forbidden","status":403,"reason":"blocked"}
//! ```
//!
//! # Examples
//!
//! The default:
//!
//! ```
//! use tollgate::Rejection;
//!
//! assert_eq!(format!("{:?}", Rejection::default()), "Rejection::problem");
//! ```
//!
//! A page for browsers. A denial has one of several reasons, and only some are the client's fault:
//!
//! ```
//! use bytes::Bytes;
//! use http::{Response, header::CONTENT_TYPE};
//! use tollgate::{Rejection, decision::Reason, rejection::Denial};
//!
//! fn page(denial: &Denial<'_>) -> Response<Bytes> {
//!     let title = match denial.reason() {
//!         Reason::Quota => "Too fast",
//!         Reason::Never => "That is too much at once",
//!         Reason::Slots | Reason::QueueFull | Reason::WaitExpired => "Many are at it",
//!         Reason::NoKey => "Who is asking?",
//!         Reason::Blocked => "Not you",
//!         // Ours, not the client's: the store failed.
//!         _ => "We have a problem, and are working on it",
//!     };
//!     // No wait where none helps, or none is known.
//!     let wait = denial.retry_after().map_or(String::new(), |wait| {
//!         format!("<p>Come back in {} s.", wait.as_millis().div_ceil(1_000))
//!     });
//!     let mut response = Response::new(format!("<h1>{title}</h1>{wait}").into());
//!     // 429, 503, or what the rule says.
//!     *response.status_mut() = denial.status();
//!     response
//!         .headers_mut()
//!         .insert(CONTENT_TYPE, "text/html; charset=utf-8".parse().expect("a media type"));
//!     response
//! }
//!
//! let rejection = Rejection::custom(page);
//! assert_eq!(format!("{rejection:?}"), "Rejection::custom");
//! ```

mod denial;
mod details;
mod grpc;
mod http;
pub(crate) mod style;
#[cfg(test)]
mod tests;

pub use self::denial::Denial;
#[doc(no_inline)]
pub use self::style::Rejection;
pub(crate) use self::{
    grpc::{UNAVAILABLE, UNIMPLEMENTED, trailers_only},
    http::{Responses, clear_for_head},
};
pub use crate::protocol::Protocol;
