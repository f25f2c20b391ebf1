//! Limits on the messages of gRPC streams.
//!
//! A call may be a stream that lasts for days: a [`RateLimitLayer`](crate::RateLimitLayer) counts it once. A
//! [`MessageLimitLayer`] counts the messages that the client sends in it, by the same kinds of rules.
//!
//! | | |
//! | --- | --- |
//! | counted | the messages of gRPC requests, by their prefixes; a unary call has one |
//! | not counted | messages to clients; messages that the service never reads; other requests, with [`Protocol::Auto`](crate::rejection::Protocol::Auto) |
//! | key, plan, cost of a message | from the head of the call, once |
//! | over the limit | the call ends with RESOURCE_EXHAUSTED, or the message waits: [`wait_up_to`](MessageLimitLayer::wait_up_to) |
//! | store failed, and the rule has `OnStoreError::Deny` | the call ends with UNAVAILABLE |
//!
//! # How a call ends
//!
//! If the response has not begun, the client gets the same denial as from a `RateLimitLayer`: a head with the status,
//! `Retry-After`, the quota and the retry time. If it has begun, its body ends at once with trailers that have the status and
//! its details; data that the service had not sent yet is lost. The service reads a [`MessageLimitError`] in place of the next
//! message, so that it does not mistake the stream for a complete one.
//!
//! In both cases the service's future or response body is dropped at its next await, as when a client resets the stream. Work that has
//! to be finished, such as that on messages which were admitted, belongs into a task of its own.
//!
//! A message is counted before any byte behind its prefix is passed on. If several messages come in one frame, those that fit are
//! passed on. At most one frame per stream is held back.
//!
//! # Where the layer goes
//!
//! Inside of a `RateLimitLayer` that limits calls, around all gRPC services or one of them. By default it treats every request
//! as gRPC, because tonic does the same: a content type must not disable the limit. If REST passes through the layer as well,
//! see [`MessageLimitLayer::protocol`]. In the metrics, a decision may be about several messages: `tollgate_cost_units_total`
//! has their number.
//!
//! **gRPC-Web**: put `tonic_web::GrpcWebLayer` outside of the layer. It translates gRPC-Web, in binary and in text, to gRPC and
//! back:
//!
//! ```text
//! ServiceBuilder::new()
//!     .layer(GrpcWebLayer::new())
//!     .layer(MessageLimitLayer::new(store, [messages])?)
//!     .service(WeatherServer::new(weather))
//! ```
//!
//! A request in gRPC-Web that reaches the layer is rejected with UNIMPLEMENTED, and the first one is an event at error level.
//!
//! # Examples
//!
//! Two messages per minute for each client, in any number of streams:
//!
//! ```
//! use axum::body::{Body, to_bytes};
//! use http::{Request, Response, StatusCode};
//! use tollgate::{
//!     MINUTE, MemoryStore, Quota, Rule, key::header, message::{MessageBody, MessageLimitLayer},
//! };
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! /// Reads all messages, as a service of tonic does.
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
//!
//! A customised one: messages wait in a queue, imports cost more, and an outer layer limits calls. The test takes
//! no time, because tokio's clock is paused:
//!
//! ```
//! use std::time::Duration;
//!
//! use axum::body::{Body, to_bytes};
//! use http::{Request, Response};
//! use tollgate::{
//!     MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, SECOND, clock::Clock, key::header,
//!     message::{MessageBody, MessageLimitLayer},
//! };
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! async fn record(request: Request<MessageBody<Body>>) -> Result<Response<Body>, axum::Error> {
//!     to_bytes(Body::new(request.into_body()), usize::MAX).await?;
//!     Ok(Response::new(Body::empty()))
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::builder().clock(Clock::tokio()).build();
//! let calls = Rule::new("calls", Quota::gcra(60, MINUTE)).by(header("x-api-key"));
//! let messages = Rule::new("messages", Quota::gcra(10, SECOND).burst(10))
//!     .by(header("x-api-key"))
//!     .cost_by(|head| if head.uri.path().ends_with("/Import") { 5 } else { 1 });
//! let service = ServiceBuilder::new()
//!     .layer(RateLimitLayer::new(store.clone(), [calls])?)
//!     .layer(MessageLimitLayer::new(store, [messages])?.wait_up_to(Duration::from_secs(5)).hide_quota())
//!     .service_fn(record);
//!
//! let request = Request::post("/weather.v1.Weather/Import")
//!     .header("content-type", "application/grpc")
//!     .header("x-api-key", "acme.k1")
//!     .body(Body::from([0; 5].repeat(8)))?;
//! let begun = tokio::time::Instant::now();
//! let response = service.oneshot(request).await?;
//! assert_eq!(response.headers().get("grpc-status"), None);
//! // Eight messages at five units each: ten were there, and ten come each second.
//! assert_eq!(begun.elapsed().as_secs(), 3);
//! # Ok(())
//! # }
//! ```

mod body;
mod call;
mod error;
mod framing;
mod future;
mod grant;
mod layer;
mod service;

pub use self::{
    body::MessageBody, error::MessageLimitError, layer::MessageLimitLayer, service::MessageLimit,
};
