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
//! With Redis the order is that in which requests arrive there, whatever process they come from, and times are those of its clock. A
//! request starts no earlier than it is told, and later by the way of the reply and by its timer. Its units also lapse if its process
//! crashes while it waits, or if the reply is lost.
//!
//! # How many wait
//!
//! | bound | default | above it |
//! | --- | --- | --- |
//! | of a layer: [`RateLimitLayer::max_waiting`](crate::RateLimitLayer::max_waiting) | 1 024 requests, 4 MiB of heads | denied, `queue_full` |
//! | of a rule, and of one client of it: [`Rule::max_waiting`](crate::Rule::max_waiting) | 16 384 and 1 024 | denied, `queue_full` |
//!
//! Give one client far fewer places than the layer has: `.max_waiting(10, 500)`. Otherwise one that sends a thousand requests at once
//! keeps all others from waiting. A waiting request costs about 5 KB and its head, so ten thousand cost about 50 MB:
//! `cargo run --example waiters` prints it.
//!
//! A request that would wait and may not is denied with 429. The [metrics](crate::guide::operating) `tollgate_waiting`,
//! `tollgate_wait_seconds` and `tollgate_waits_total` say how many wait, for how long, and what becomes of them.
//!
//! # What goes together
//!
//! | you want | you get |
//! | --- | --- |
//! | a rule that waits, and others that do not | the others are checked when the request comes and charged when it starts: a window that is full by then denies it, and its place goes back |
//! | several rules that wait | the request starts when all of them let it, and is charged as of then; no longer than the shortest wait |
//! | a wait on a window or a log | refused: units come back many at a time. Take [`Quota::leaky_bucket`](crate::Quota::leaky_bucket) |
//! | a wait with [`Leased`](crate::Consistency::Leased) or [`Eventual`](crate::Consistency::Eventual) on Redis | refused: processes would start their own requests first. Take [`Exact`](crate::Consistency::Exact) |
//! | several rules in a Redis Cluster, one of which waits | refused unless all states are in one slot (`Partition::One`), or the rule has a layer of its own |
//! | a wait while Redis is unreachable | the rule's [answer to a store failure](crate::OnStoreError): its local share denies and does not wait |
//! | another quota or another wait | a queue keeps its length, and instants that were given stay. Places that are given up then lapse |
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
