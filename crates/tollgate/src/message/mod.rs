//! Limits on the messages of gRPC streams.
//!
//! A call may be one stream that lasts for days: a [`RateLimitLayer`](crate::RateLimitLayer) counts it once. A
//! [`MessageLimitLayer`] counts the messages that the client sends in it, and takes the same rules.
//!
//! | | |
//! | --- | --- |
//! | what is counted | the messages of requests in gRPC and gRPC-Web, by their prefixes; a unary call is one |
//! | what is not | messages to clients; what the service never reads; requests in anything else, with [`Protocol::Auto`](crate::Protocol::Auto) |
//! | against whom | the head of the call says it once: key, plan, and the cost of a message |
//! | over the limit | the call ends with RESOURCE_EXHAUSTED, or the message waits: `wait_up_to`, with the feature `tokio` |
//! | the store failed, and a rule denies then | the call ends with UNAVAILABLE |
//!
//! # How a call ends
//!
//! Where the response has not begun, the client gets what a `RateLimitLayer` would answer: one head that says the status,
//! `Retry-After`, the quota and when to try again. Where it has, its body ends at once, in trailers with the status and its
//! details; what the service had not sent yet is lost. The service reads a [`MessageLimitError`] in place of the next
//! message, so that it takes no cut stream for a whole one, but the client's answer does not depend on it.
//!
//! A message is counted before any byte behind its prefix is handed on. Of several in one frame those that fit are handed
//! on. One frame of a stream is held back at most.
//!
//! # Where the layer goes
//!
//! Inside of a `RateLimitLayer` that limits calls, around all gRPC services or one of them; either side of tonic-web's layer.
//! Every request that comes by is read as gRPC, because tonic does the same: a content type must not switch the limit off.
//! Where REST has to pass through the layer as well, see [`MessageLimitLayer::protocol`].
//! In the metrics a decision may be about several messages: `tollgate_cost_units_total` has their number.
//!
//! # Examples
//!
//! Two messages in a minute for each client, in however many streams:
//!
//! ```
//! use axum::body::{Body, to_bytes};
//! use http::{Request, Response, StatusCode};
//! use tollgate::{MINUTE, MemoryStore, MessageBody, MessageLimitLayer, Quota, Rule, key::header};
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! /// Reads all messages. tonic would do it, and the services that it generates.
//! async fn record(request: Request<MessageBody<Body>>) -> Result<Response<Body>, axum::Error> {
//!     let stream = to_bytes(Body::new(request.into_body()), usize::MAX).await?;
//!     assert!(stream.len() <= 2 * 5, "no more than the limit comes here");
//!     Ok(Response::new(Body::empty()))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let rule = Rule::new("messages", Quota::sliding_log(2, MINUTE)).by(header("x-api-key"));
//! let limits = MessageLimitLayer::new(MemoryStore::new(), [rule])?;
//! let service = ServiceBuilder::new().layer(limits).service_fn(record);
//!
//! // An empty message is its prefix: no flags, and a length of nothing.
//! let send = async |messages| {
//!     let request = Request::post("/weather.v1.Weather/Record")
//!         .header("content-type", "application/grpc")
//!         .header("x-api-key", "acme.k1")
//!         .body(Body::from([0; 5].repeat(messages)));
//!     service.clone().oneshot(request.unwrap()).await.unwrap()
//! };
//! assert_eq!(send(1).await.headers().get("grpc-status"), None);
//! let denied = send(2).await;
//! assert_eq!(denied.status(), StatusCode::OK);
//! assert_eq!(denied.headers()["grpc-status"], "8");
//! assert_eq!(denied.headers()["retry-after"], "60");
//! # Ok(())
//! # }
//! ```
#![cfg_attr(
    feature = "tokio",
    doc = r#"
A customised one: messages wait for their turn, imports cost more, and calls are limited outside of it. Here the wait takes
no time, because time is tokio's and stands still:

```
use std::time::Duration;

use axum::body::{Body, to_bytes};
use http::{Request, Response};
use tollgate::{
    Clock, MINUTE, MemoryStore, MessageBody, MessageLimitLayer, Quota, RateLimitLayer, Rule, SECOND,
    key::header,
};
use tower::{ServiceBuilder, ServiceExt};

async fn record(request: Request<MessageBody<Body>>) -> Result<Response<Body>, axum::Error> {
    to_bytes(Body::new(request.into_body()), usize::MAX).await?;
    Ok(Response::new(Body::empty()))
}

# #[tokio::main(flavor = "current_thread", start_paused = true)]
# async fn main() -> Result<(), Box<dyn std::error::Error>> {
let store = MemoryStore::builder().clock(Clock::tokio()).build();
let calls = Rule::new("calls", Quota::gcra(60, MINUTE)).by(header("x-api-key"));
let messages = Rule::new("messages", Quota::gcra(10, SECOND).burst(10))
    .by(header("x-api-key"))
    .cost_by(|head| if head.uri.path().ends_with("/Import") { 5 } else { 1 });
let service = ServiceBuilder::new()
    .layer(RateLimitLayer::new(store.clone(), [calls])?)
    .layer(MessageLimitLayer::new(store, [messages])?.wait_up_to(Duration::from_secs(5)).quiet())
    .service_fn(record);

let request = Request::post("/weather.v1.Weather/Import")
    .header("content-type", "application/grpc")
    .header("x-api-key", "acme.k1")
    .body(Body::from([0; 5].repeat(8)))?;
let begun = tokio::time::Instant::now();
let response = service.oneshot(request).await?;
assert_eq!(response.headers().get("grpc-status"), None);
// Eight messages at five units each: ten were there, and ten come each second.
assert_eq!(begun.elapsed().as_secs(), 3);
# Ok(())
# }
```
"#
)]

mod body;
mod call;
mod error;
mod framing;
mod future;
mod layer;
#[cfg(feature = "tokio")]
mod line;
mod prefixes;
mod quads;
mod response_body;
mod service;
mod turn;
mod web;

pub use self::{
    body::MessageBody,
    error::{MessageLimitError, MessageLimitErrorKind},
    future::MessageLimitFuture,
    layer::MessageLimitLayer,
    response_body::MessageLimitResponseBody,
    service::MessageLimit,
};
