//! A Tower layer for outgoing requests: sends them as fast as their servers allow, and retries what they reject.
//!
//! [`ClientRateLimitLayer`] wraps an HTTP client, such as hyper's, reqwest's, or a channel of tonic:
//!
//! ```no_run
//! use http::Request;
//! use hyper_util::{client::legacy::Client, rt::TokioExecutor};
//! use tollgate_client::{ClientRateLimitLayer, ReplayBody};
//! use tower::{BoxError, ServiceBuilder, ServiceExt};
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), BoxError> {
//!     let http = Client::builder(TokioExecutor::new()).build_http::<ReplayBody<String>>();
//!     let client = ServiceBuilder::new().layer(ClientRateLimitLayer::new()).service(http);
//!     for page in 0..100 {
//!         // It waits while the server's budget is empty, and retries a 429 when the server says that it may.
//!         let request = Request::get(format!("http://api.example/items?page={page}"));
//!         let response = client.clone().oneshot(request.body(String::new())?).await?;
//!         println!("{}", response.status());
//!     }
//!     Ok(())
//! }
//! ```
//!
//! - **It obeys server limits.** It reads what a server says about its budget. When nothing is left, requests wait in a FIFO
//!   queue until the budget is refilled. While something is left, no request is delayed.
//! - **It retries** what a server rejects for now (429, 503, `UNAVAILABLE`), no earlier than it asks or after
//!   [ten minutes](ClientRateLimitLayer::max_retry_after), and only requests that are safe to repeat.
//! - **It applies a limit of the client's own** ([`limit`](ClientRateLimitLayer::limit)) where a provider does not report one.
//! - **No request waits longer than [`max_wait`](ClientRateLimitLayer::max_wait)**, whatever a server says.
//!
//! | for | take |
//! | --- | --- |
//! | limits on the requests to your own server | [tollgate](https://docs.rs/tollgate), the other side. Neither needs the other |
//! | a limit of the client's own that many processes share | [tollgate-redis](https://docs.rs/tollgate-redis) |
//! | what a word means | the [glossary](https://docs.rs/tollgate/latest/tollgate/guide/index.html#glossary) |
//!
//! # The parts
//!
//! - [`ClientRateLimitLayer`] is the configuration, and [`ClientRateLimit`] the service around your client.
//! - [`ReplayBody`] is the body of a request, which the layer keeps for a retry.
//! - [`ClientRateLimitError`] is the error of a request that was not sent; [its kind](ClientRateLimitErrorKind) says why.
//! - [`ServerLimits`] is what you read of a provider's own fields.
//!
//! # Fields it reads
//!
//! | field | read as |
//! | --- | --- |
//! | `RateLimit`, `RateLimit-Policy` | the lists of draft-ietf-httpapi-ratelimit-headers-08 to -11: each budget, up to eight; and tollgate's `tollgate-ms`, its reset in milliseconds |
//! | `RateLimit` | the dictionary of draft-07 |
//! | `RateLimit-Remaining`, `-Reset` | draft-06 and before |
//! | `X-RateLimit-Remaining`, `-Reset`, also as `X-Rate-Limit-` | with a reset in seconds from now, seconds or milliseconds since the epoch, as a date or in RFC 3339, or with units (`6m0s`) |
//! | `X-RateLimit-Remaining-Requests`, `-Reset-Requests`, `anthropic-ratelimit-tokens-remaining`, `-reset`, and other pairs of names with `ratelimit` | budgets of their own; those of tokens, bytes and the like where none is left |
//! | `Retry-After` with a [status of a limit](ClientRateLimitLayer::limit_statuses): 429 or 503 | RFC 9110 §10.2.3, also with a fraction (`2.0`) or a unit (`30s`); it takes precedence over all of the above |
//! | `retry-after-ms`, and other names that end in `retry-after` | the same; the longest counts |
//! | `grpc-status-details-bin`, `grpc-retry-pushback-ms` | with `RESOURCE_EXHAUSTED` or `UNAVAILABLE` in the head of the response |
//!
//! For others there is [`read_limits`](ClientRateLimitLayer::read_limits). If a response uses several styles, the newest one counts. A field that cannot be parsed is ignored. Budgets in a response
//! from a cache (`Age`) are ignored. Dates are compared with the response's own `Date`.
//!
//! A budget is valid for its *partition*: one host and port by default. If a server has limits per route or account, add them
//! with [`partition_by`](ClientRateLimitLayer::partition_by).
//!
//! When the window of an empty budget ends, one request is sent first. Its response says how many may follow. If it no longer
//! reports the budget, all do. After a cooldown without a reported budget, each good response lets two more go, up to the number at which
//! the server rejected one last time, and from there on the same anew. So a cooldown does not end in a burst. Clients do not return simultaneously either: up
//! to 10 % is added at random to each wait that a server asks for ([`retry_jitter`](ClientRateLimitLayer::retry_jitter)).
//!
//! # Retries
//!
//! Retried are HTTP 429 and 503, [other statuses](ClientRateLimitLayer::limit_statuses) that you name, gRPC `UNAVAILABLE`, and `RESOURCE_EXHAUSTED` if the server says when to retry. The request
//! must be idempotent: by its method (GET, HEAD, OPTIONS, TRACE, PUT, DELETE), by an `Idempotency-Key` header, or by
//! [`idempotent`](ClientRateLimitLayer::idempotent). There are at most four retries per request, and only while the
//! [retry budget](ClientRateLimitLayer::retry_budget) lasts. A request whose connection fails is not retried: its outcome is
//! unknown.
//!
//! The delay is what the server asks for plus jitter. If the server does not say, it is an exponential backoff with jitter: 100
//! ms, doubled with each retry, at most 10 s, plus up to as much again at random.
//!
//! The body of such a request is kept ([`ReplayBody`]), up to [64 KiB](ClientRateLimitLayer::max_replay_bytes). A request whose body comes
//! in pieces, later than its head, is sent once. The rejecting response is kept until the retry is sent and then dropped,
//! unread. If no retry is sent, the caller gets that response unchanged.
//!
//! # In a stack
//!
//! The inner service takes `Request<ReplayBody<B>>`. hyper's client takes any body, and so does reqwest's with one more line:
//!
//! ```text
//! ServiceBuilder::new()
//!     .layer(ClientRateLimitLayer::new())
//!     .service(Client::builder(TokioExecutor::new()).build(connector))          // hyper-util
//!
//! ServiceBuilder::new()
//!     .layer(ClientRateLimitLayer::new())
//!     .service_fn(move |request: Request<ReplayBody<Body>>| {                   // reqwest
//!         let request = reqwest::Request::try_from(request.map(reqwest::Body::wrap));
//!         let client = client.clone();
//!         async move { client.execute(request?).await.map(http::Response::from) }
//!     })
//! ```
//!
//! tonic's channel takes its own body only; with the feature `tonic` there is `ClientRateLimitLayer::over_channel`.
//!
//! Put a timeout per attempt inside of this layer and a timeout for the whole request outside. A concurrency limit on either
//! side also counts the requests that wait in this layer.
//!
//! # Accuracy
//!
//! A budget is what the server reported, minus the requests that it may have counted since. Other clients may use the same
//! budget: then the server rejects a request, and the layer retries it. Before the first response nothing is held back.
//!
//! # Panics
//!
//! Requests wait with tokio's timer: they panic outside of a runtime that has it enabled.
//!
//! # A test
//!
//! A server that takes two requests per second, and a client that is not configured for it:
//!
//! ```
//! use http::{Request, Response, StatusCode};
//! use tollgate_client::{ClientRateLimitLayer, ReplayBody};
//! use tollgate_core::{Clock, Key, Limiter, MemoryStore, Quota, Rule, SECOND};
//! use tower::{BoxError, ServiceBuilder, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), BoxError> {
//! let store = MemoryStore::builder().clock(Clock::tokio()).build();
//! let limiter = Limiter::new(store, [Rule::new("calls", Quota::gcra(2, SECOND))])?;
//! let server = move |_: Request<ReplayBody<String>>| {
//!     let decision = limiter.try_acquire("calls", &Key::shared());
//!     async move {
//!         let response = match decision?.retry_after() {
//!             None => Response::new(()),
//!             Some(_) => Response::builder()
//!                 .status(StatusCode::TOO_MANY_REQUESTS)
//!                 .header("retry-after", "1")
//!                 .body(())?,
//!         };
//!         Ok::<_, BoxError>(response)
//!     }
//! };
//!
//! let client = ServiceBuilder::new().layer(ClientRateLimitLayer::new()).service_fn(server);
//! let start = tokio::time::Instant::now();
//! for _ in 0..6 {
//!     let request = Request::get("http://api.example/items").body(String::new())?;
//!     assert_eq!(client.clone().oneshot(request).await?.status(), StatusCode::OK);
//! }
//! assert!(start.elapsed() >= 2 * SECOND);
//! # Ok(())
//! # }
//! ```
//!
//! # A customised one
//!
//! A provider that does not report its budget. The client keeps to the rate in the contract, tracks each route separately,
//! allows retries of a search although it is a POST, and waits for at most five seconds:
//!
//! ```
//! use std::time::Duration;
//!
//! use http::{Request, Response, StatusCode};
//! use tollgate_client::{
//!     ClientRateLimitError, ClientRateLimitErrorKind, ClientRateLimitLayer, ReplayBody,
//! };
//! use tollgate_core::{Clock, Key, LiveLimiter, MemoryStore, Quota, Rule, SECOND};
//! use tower::{BoxError, ServiceBuilder, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), BoxError> {
//! let store = MemoryStore::builder().clock(Clock::tokio()).build();
//! let contract = LiveLimiter::new(store, [Rule::new("contract", Quota::gcra(10, SECOND))])?;
//! let layer = ClientRateLimitLayer::new()
//!     .limit(contract, |contract, head| {
//!         let host = head.uri.host().unwrap_or_default();
//!         contract.check("contract", &Key::of(host)).map(|check| [check])
//!     })?
//!     .partition_by(|head| {
//!         let host = head.uri.authority().map_or("", |authority| authority.as_str());
//!         format!("{} {host}{}", head.method, head.uri.path())
//!     })
//!     .idempotent(|head| head.uri.path() == "/search")
//!     .retries(2)
//!     .max_wait(Duration::from_secs(5));
//!
//! // The server asks for an hour.
//! let busy = |_: Request<ReplayBody<String>>| async {
//!     let busy = Response::builder().status(StatusCode::SERVICE_UNAVAILABLE);
//!     Ok::<_, BoxError>(busy.header("retry-after", "3600").body(())?)
//! };
//! let client = ServiceBuilder::new().layer(layer).service_fn(busy);
//! let search = || Request::post("http://api.example/search").body("q=anvils".to_owned());
//!
//! // That exceeds `max_wait`, so the caller gets the 503.
//! let response = client.clone().oneshot(search()?).await?;
//! assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
//!
//! // The next request is not sent at all.
//! let error = client.oneshot(search()?).await.unwrap_err();
//! let error = error.downcast_ref::<ClientRateLimitError>().expect("it was not sent");
//! assert_eq!(error.kind(), ClientRateLimitErrorKind::ServerLimit);
//! // `max_retry_after`: ten minutes.
//! assert_eq!(error.retry_after(), Some(Duration::from_secs(600)));
//! # Ok(())
//! # }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire;
mod advice;
mod budgets;
mod client_limit;
mod config;
mod error;
mod layer;
#[cfg(feature = "tonic")]
mod over_channel;
mod partition;
mod replay_body;
mod retry;
mod service;

#[cfg(feature = "tonic")]
pub use self::over_channel::OverChannel;
pub use self::{
    advice::ServerLimits,
    error::{ClientRateLimitError, ClientRateLimitErrorKind},
    layer::ClientRateLimitLayer,
    replay_body::ReplayBody,
    service::{ClientRateLimit, ResponseFuture},
};

/// Compiles the program in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
