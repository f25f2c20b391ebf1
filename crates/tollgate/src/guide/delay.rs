//! Delay instead of deny: smooth a burst, pace a provider, wait for a slot.
//!
//! You want a request that is a little too early to wait for its turn, and only one that would wait too long to be denied. Say how
//! long, on the rule:
//!
//! ```
//! use axum::{Router, body::Body, routing::get};
//! use http::{Request, StatusCode};
//! use tollgate::{MemoryStore, Quota, RateLimitLayer, Rule, SECOND, key::constant};
//! use tower::ServiceExt;
//! use std::time::Duration;
//!
//! #[tokio::main(flavor = "current_thread", start_paused = true)]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // Ten a second, evenly, one at a time: the leaky bucket as a queue.
//!     let rule = Rule::new("render", Quota::gcra(10, SECOND).burst(1))
//!         .wait(Duration::from_millis(250))
//!         .by(constant("all"));
//!     let store = MemoryStore::builder().clock(tollgate::Clock::tokio()).build();
//!     let limits = RateLimitLayer::new(store, [rule])?.server_timing();
//!     let app = Router::new().route("/", get(|| async { "a picture" }).route_layer(limits));
//!
//!     let start = tokio::time::Instant::now();
//!     let render = || app.clone().oneshot(Request::new(Body::empty()));
//!     let (first, second, third, fourth) = tokio::join!(render(), render(), render(), render());
//!     assert_eq!(first?.status(), StatusCode::OK);
//!     assert_eq!(second?.headers()["server-timing"], "ratelimit;dur=100.0");
//!     assert_eq!(third?.headers()["server-timing"], "ratelimit;dur=200.0");
//!     // It would have to wait for 300 ms.
//!     assert_eq!(fourth?.status(), StatusCode::TOO_MANY_REQUESTS);
//!     assert_eq!(start.elapsed().as_millis(), 200);
//!     Ok(())
//! }
//! ```
//!
//! # What waits
//!
//! The head of the request waits, in front of the inner service. Its body is not read, so flow control slows the client down. Meanwhile
//! it holds no slot and no readiness of the inner service: a place in a concurrency limit below is for others.
//!
//! Its place in the queue is taken in the store, with its units: one call returns the time at which it may start. So all processes
//! share one order, and none polls. Requests with the same rules and keys start first in, first out.
//!
//! | a client that | costs |
//! | --- | --- |
//! | goes away while it waits, with nobody behind | nothing: its place goes back |
//! | goes away with others behind | its units lapse: the others keep the times that they were given |
//!
//! A layer holds at most 1 024 waiting requests with 4 MiB of heads ([`max_waiting`](crate::RateLimitLayer::max_waiting)). Above that, a
//! request that would wait is denied.
//!
//! # Choose the time well
//!
//! - **Below the timeout of your clients.** If they give up at 500 ms under a wait of 1 s, nearly all of the rate is spent on requests
//!   that nobody waits for any more: of 10 useful requests a second 0.3 are left.
//! - **Let only the narrowest rule wait.** A shared rule that waits delays everybody by up to its time; beside it, whoever waits
//!   longest or costs least takes all of a rate that it fills alone.
//! - **With slots**, the time is how long a request waits for another one to end: see
//!   [Limit how much runs at once](crate::guide::at_once).
//!
//! # Workers
//!
//! A [`Limiter`](crate::Limiter) waits by the same rules and in the same queues: workers on several machines pace one provider. Where a
//! worker should not wait, put the job back into its queue with the [retry time](crate::Decision::retry_after) as the visibility delay:
//! `cargo run --example requeue`.
