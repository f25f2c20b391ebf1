//! For clients: a layer that obeys what servers say of their limits.
//!
//! [`PaceLayer`] stands in front of an HTTP client, as the other layers of this crate stand in front of a service. It sends
//! requests as fast as their servers want them:
//!
//! - **What a server says of its budget is kept to.** Where nothing is left, requests wait in the order in which they came,
//!   until there is. While something is left, nothing is slowed down.
//! - **What a server refuses for now is sent again**, not earlier than it says, where that can do no harm.
//! - **A quota of the client's own** ([`limit`](PaceLayer::limit)) is waited for in line.
//! - **No request waits longer than its patience**, whatever a server says.
//!
//! # Example
//!
//! A server that takes two requests a second, and a client that has never heard of that:
//!
//! ```
//! use http::{Request, Response, StatusCode};
//! use tollgate::{
//!     Clock, MemoryStore, Quota, RateLimitLayer, Rule, SECOND,
//!     client::{PaceLayer, ReplayBody},
//!     key::constant,
//! };
//! use tower::{BoxError, ServiceBuilder, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), BoxError> {
//! let store = MemoryStore::builder().clock(Clock::tokio()).build();
//! let rule = Rule::new("calls", Quota::gcra(2, SECOND)).by(constant("all"));
//! let server = ServiceBuilder::new()
//!     .layer(RateLimitLayer::new(store, [rule])?)
//!     .service_fn(|_: Request<ReplayBody<String>>| async { Ok::<_, BoxError>(Response::new(())) });
//!
//! let client = ServiceBuilder::new().layer(PaceLayer::new()).service(server);
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
//! A provider that says nothing of what is left. The client keeps to the rate in the contract, counts each route for itself,
//! lets a search be sent twice although it is a POST, and gives up after five seconds:
//!
//! ```
//! use std::time::Duration;
//!
//! use http::{Request, Response, StatusCode};
//! use tollgate::{
//!     Clock, MemoryStore, Quota, Rule, SECOND,
//!     client::{PaceError, PaceErrorKind, PaceLayer, ReplayBody},
//!     key::authority,
//! };
//! use tower::{BoxError, ServiceBuilder, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), BoxError> {
//! let store = MemoryStore::builder().clock(Clock::tokio()).build();
//! let pace = PaceLayer::new()
//!     .limit(store, [Rule::new("contract", Quota::gcra(10, SECOND)).by(authority())])?
//!     .scope_by(|head| {
//!         let host = head.uri.authority().map_or("", |authority| authority.as_str());
//!         format!("{} {host}{}", head.method, head.uri.path())
//!     })
//!     .idempotent(|head| head.uri.path() == "/search")
//!     .retries(2)
//!     .patience(Duration::from_secs(5));
//!
//! // It wants to be left alone for an hour.
//! let busy = |_: Request<ReplayBody<String>>| async {
//!     let busy = Response::builder().status(StatusCode::SERVICE_UNAVAILABLE);
//!     Ok::<_, BoxError>(busy.header("retry-after", "3600").body(())?)
//! };
//! let client = ServiceBuilder::new().layer(pace).service_fn(busy);
//! let search = || Request::post("http://api.example/search").body("q=anvils".to_owned());
//!
//! // That is longer than the patience, so the answer is the caller's.
//! let response = client.clone().oneshot(search()?).await?;
//! assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
//!
//! // And the next request does not even go out.
//! let error = client.oneshot(search()?).await.unwrap_err();
//! let error = error.downcast_ref::<PaceError>().expect("it was not sent");
//! assert_eq!(error.kind(), PaceErrorKind::Held);
//! // A server is believed for ten minutes.
//! assert_eq!(error.retry_after(), Some(Duration::from_secs(600)));
//! # Ok(())
//! # }
//! ```
//!
//! # What is heard
//!
//! | field | read as |
//! | --- | --- |
//! | `RateLimit`, `RateLimit-Policy` | the lists of draft-ietf-httpapi-ratelimit-headers-08 to -11: each budget, up to eight |
//! | `RateLimit` | the dictionary of draft-07 |
//! | `RateLimit-Remaining`, `-Reset` | draft-06 and before |
//! | `X-RateLimit-Remaining`, `-Reset`, also as `X-Rate-Limit-` | with a reset in seconds from now, seconds or milliseconds since the epoch, as an HTTP-date or in RFC 3339 |
//! | `Retry-After` with 429 or 503 | RFC 9110 §10.2.3; it wins over all of the above |
//! | `grpc-status-details-bin`, `grpc-retry-pushback-ms` | with `RESOURCE_EXHAUSTED` or `UNAVAILABLE` in the head of the response |
//!
//! Of several styles the newest counts. A field that cannot be read is as good as absent. Budgets on a response from a cache
//! (`Age`) are those of somebody else. Dates are compared with the response's own `Date`.
//!
//! What was heard is true for a *scope*: one host and port, unless [`scope_by`](PaceLayer::scope_by) says otherwise. A server
//! whose limits are for each route wants the route in it.
//!
//! Once the time of an empty budget is over, one request goes alone, and its answer says how many may follow; where it says
//! nothing any more, all do. So a hold does not end in a rush. Nor does it end everywhere at once: up to a tenth is added to a
//! wait that a server asks for, at random in each process ([`retry_jitter`](PaceLayer::retry_jitter)).
//!
//! # What is sent again
//!
//! HTTP 429 and 503, and in gRPC `UNAVAILABLE`, and `RESOURCE_EXHAUSTED` where the server says when. Of those, requests that
//! are idempotent: by their method (GET, HEAD, OPTIONS, TRACE, PUT, DELETE), by an `Idempotency-Key` header, or because
//! [`idempotent`](PaceLayer::idempotent) says so. Up to four times, as long as the [budget](PaceLayer::retry_budget) for
//! retries has something left. A request whose connection fails is not sent again: nobody knows what became of it.
//!
//! The wait is what the server said and up to a tenth more; where it said nothing, 100 ms at first, doubled each time, with
//! as much again at random, up to 10 s.
//!
//! The body of such a request is kept while it is sent ([`ReplayBody`]), up to [64 KiB](PaceLayer::keep_bodies). The response
//! to it is kept until the next attempt begins and then dropped, unread. Where no further attempt is made, the caller has that
//! response as it came.
//!
//! # In a stack
//!
//! The inner service takes `Request<ReplayBody<B>>`. hyper's client, and with one line reqwest's, take any body:
//!
//! ```text
//! ServiceBuilder::new()
//!     .layer(PaceLayer::new())
//!     .service(Client::builder(TokioExecutor::new()).build(connector))          // hyper-util
//!
//! ServiceBuilder::new()
//!     .layer(PaceLayer::new())
//!     .service_fn(move |request: Request<ReplayBody<Body>>| {                   // reqwest
//!         let request = reqwest::Request::try_from(request.map(reqwest::Body::wrap));
//!         let client = client.clone();
//!         async move { client.execute(request?).await.map(http::Response::from) }
//!     })
//! ```
//!
//! tonic's channel takes its own body only; with the feature `tonic` there is `PaceLayer::over_channel`.
//!
//! Put timeouts for one attempt inside of this layer, and a timeout for everything outside. A concurrency limit inside
//! counts requests that wait here as well, one outside does too; they need not be more than what is to wait.
//!
//! # Accuracy
//!
//! A budget is what the server said, less what may have been counted since. Others that use the same budget can empty it
//! meanwhile: then the server refuses, and the request is sent again. Before a server has said anything, nothing is held
//! back.
//!
//! # Panics
//!
//! Requests wait with tokio's timer: they panic outside of a runtime that has it enabled.

mod advice;
mod budgets;
mod config;
mod error;
mod future;
mod hold;
mod layer;
#[cfg(feature = "tonic")]
mod over_channel;
mod replay_body;
mod retry;
mod scope;
mod scopes;
mod service;
mod turn;

#[cfg(feature = "tonic")]
#[cfg_attr(docsrs, doc(cfg(feature = "tonic")))]
pub use self::over_channel::OverChannel;
pub use self::{
    error::{PaceError, PaceErrorKind},
    future::ResponseFuture,
    layer::PaceLayer,
    replay_body::ReplayBody,
    service::Pace,
};
