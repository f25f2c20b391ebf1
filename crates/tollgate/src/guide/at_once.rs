//! Limit how much runs at once: exports, uploads, streams, calls to a model.
//!
//! You want three exports of a tenant at a time, and not a fourth beside them, whatever its rate is. Take
//! [`Quota::concurrent`](crate::Quota::concurrent), in one decision with the rates: a request that finds no free slot takes nothing
//! from them.
//!
//! ```
//! use axum::{Router, body::Body, routing::get};
//! use http::{Request, StatusCode};
//! use tollgate::{HOUR, MemoryStore, Quota, RateLimitLayer, Rule, key::extension_with};
//! use tower::ServiceExt;
//!
//! #[derive(Clone)]
//! struct Tenant(&'static str);
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let tenant = || extension_with(|tenant: &Tenant| Some(tenant.0));
//!     let limits = RateLimitLayer::new(
//!         MemoryStore::new(),
//!         [
//!             Rule::new("exports-at-once", Quota::concurrent(3)).by(tenant()),
//!             Rule::new("exports-per-hour", Quota::sliding_log(10, HOUR)).by(tenant()),
//!         ],
//!     )?;
//!     let app = Router::new().route("/export", get(|| async { "lines" }).route_layer(limits));
//!
//!     let export = async || {
//!         let request = Request::get("/export").extension(Tenant("acme")).body(Body::empty());
//!         app.clone().oneshot(request.unwrap()).await.unwrap()
//!     };
//!     // Three responses whose bodies are not read yet.
//!     let mut running = vec![export().await, export().await, export().await];
//!     assert_eq!(
//!         running[2].headers()["ratelimit"],
//!         r#""exports-at-once";r=0, "exports-per-hour";r=7;t=3600"#,
//!     );
//!     assert_eq!(export().await.status(), StatusCode::TOO_MANY_REQUESTS);
//!     // One ends.
//!     running.pop();
//!     assert_eq!(export().await.status(), StatusCode::OK);
//!     Ok(())
//! }
//! ```
//!
//! # How long a slot is held
//!
//! From the admission until the response has ended:
//!
//! | how it ends | the slot is back |
//! | --- | --- |
//! | the body is sent: its last frame, or its trailers in gRPC | with that frame |
//! | the body fails | with its error |
//! | the client goes away, or resets its stream in HTTP/2 | when the server drops the request or the body: at once with hyper, unless the handler blocks its thread |
//! | the handler panics, or the inner service returns an error | at once |
//! | HEAD, 204, 304: there is no body to send | when the server drops the body, behind the head |
//! | 101 and CONNECT: the connection is upgraded | with the head of the response. hyper does not tell the layer when the connection ends: see below |
//! | a handler takes the [ticket](crate::Admission::ticket) | when the ticket is dropped or settled |
//!
//! The last line is for work that outlives its response: a job that answers 202 at once, or a WebSocket. Attach the decision, and
//! move the ticket to where the work ends:
//!
//! ```
//! use http::StatusCode;
//! use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
//!
//! # #[cfg(feature = "axum")]
//! async fn start(admission: tollgate::Admission) -> StatusCode {
//!     let ticket = admission.ticket();
//!     tokio::spawn(async move {
//!         // … the work; then:
//!         drop(ticket);
//!     });
//!     StatusCode::ACCEPTED
//! }
//!
//! // Without HTTP the ticket is all there is.
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::new(MemoryStore::new(), [Rule::new("jobs", Quota::concurrent(1))])?;
//! let check = limiter.check("jobs", &Key::of("acme"))?;
//! let decision = limiter.acquire(&[check]).await;
//! let ticket = limiter.ticket(&[check], &decision);
//! assert!(!limiter.acquire(&[check]).await.is_allowed());
//! drop(ticket);
//! assert!(limiter.acquire(&[check]).await.is_allowed());
//! # Ok(())
//! # }
//! ```
//!
//! A ticket has a [number](crate::Ticket::slot_number) that only grows for each rule and key. Write it with what the work changes:
//! a request that was overtaken, because its process stood still for longer than its slots are kept, can then be refused there.
//!
//! # What clients see
//!
//! The fields have the free slots and no time: `"exports-at-once";r=0`, with `q=3;qu="concurrent-requests"` as the policy. A denial
//! is a 429 with `"reason":"slots"` in its problem details, in gRPC `RESOURCE_EXHAUSTED` with `CONCURRENCY_LIMIT_EXCEEDED`.
//! When a slot will be free is not known, so there is no `Retry-After`. Where exports take about as long, say so:
//! `Quota::concurrent(3).typically(20 * SECOND)` is the retry time. Or let the request [wait](crate::guide::delay).
//!
//! # Several costs
//!
//! A request may take several slots: its [cost](crate::RequestRule::cost_by) is their number. Costs above the limit never fit.
//!
//! # Several processes
//!
//! On Redis all processes share the slots: a request is decided in one call with its rates, and its slots are back with a second one,
//! or with the next request of its key. What runs for longer is renewed every third of a term of 15 s, by one call for all that
//! runs in a process. `RedisStore::builder(..).slot_term(..)` sets another term.
//!
//! | when | then |
//! | --- | --- |
//! | a process crashes, or is killed | its slots are back after the term |
//! | a process stands still, or cannot reach Redis, for longer than the term | its requests go on, and others may be given their slots. They are counted again as soon as the process says so, also above the limit, and nothing starts until the sum fits. `tollgate_redis_slots_total{what="outlived"}` counts them, and [`Ticket::is_outlived`](crate::Ticket::is_outlived) says so to code that wants to stop; a protected resource can refuse them by their [number](crate::Ticket::slot_number) |
//! | Redis loses its states | as before, for all processes: at most the slots in use then run above the limit |
//! | Redis does not answer | by the rule's answer to a store failure; by default a local share of the slots. What runs is not part of the share |
//! | the limit is lowered | what runs goes on, and nothing starts until fewer run |
//!
//! A request that [waits](crate::guide::delay) for a slot asks Redis every 100 ms, only the first in line of each key in each process, and at once when a
//! request of its own process ends. Between processes the order is not that of arrival.
//!
//! Short requests of busy keys need not call Redis each time: with [`Consistency::Leased`](crate::Consistency::Leased) a process keeps
//! slots for its next requests, and returns those that stay idle. The limit holds all the same. The price: an idle slot is missing elsewhere
//! for up to 5 s, and a ticket has no number. With `Eventual`, slots are exact, and the rule says so when it is bound.
//!
//! # What it does not do
//!
//! It counts what runs by key, and knows nothing of the load of the machine: for that, shed load
//! [below the layer](crate::guide::choosing#load-shedding).
