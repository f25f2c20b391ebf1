//! Count only what fails: log-ins, codes, look-ups of things that are not there.
//!
//! You want to lock out an address that guesses passwords, and never a person who logs in often. Say which responses count, in
//! the rule; the handler does not know of it:
//!
//! ```
//! use axum::{Router, body::Body, routing::post};
//! use http::{Request, StatusCode};
//! use tollgate::{
//!     MINUTE, MemoryStore, Quota, RateLimitLayer, Rule,
//!     key::{PeerAddr, client_ip},
//! };
//! use tower::ServiceExt;
//!
//! async fn login(password: String) -> StatusCode {
//!     if password == "open sesame" { StatusCode::OK } else { StatusCode::UNAUTHORIZED }
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // fail2ban in three lines: three failures in ten minutes lock an address out.
//!     let rule = Rule::new("failures-per-ip", Quota::sliding_log(3, 10 * MINUTE))
//!         .by(client_ip())
//!         .count_if(|response| response.is_failure());
//!
//!     let limits = RateLimitLayer::new(MemoryStore::new(), [rule])?.hide_quota();
//!     let app = Router::new().route("/login", post(login).route_layer(limits));
//!     let attempt = async |password: &'static str| {
//!         let request = Request::post("/login").extension(PeerAddr("192.0.2.1:40000".parse().unwrap()));
//!         app.clone().oneshot(request.body(Body::from(password)).unwrap()).await.unwrap().status()
//!     };
//!     for _ in 0..20 {
//!         assert_eq!(attempt("open sesame").await, StatusCode::OK);
//!     }
//!     for _ in 0..3 {
//!         assert_eq!(attempt("guess").await, StatusCode::UNAUTHORIZED);
//!     }
//!     // Now not even the right password is looked at.
//!     assert_eq!(attempt("open sesame").await, StatusCode::TOO_MANY_REQUESTS);
//!     Ok(())
//! }
//! ```
//!
//! [`count_if`](crate::RequestRule::count_if) receives the [response](crate::InnerResponse) of the inner service:
//!
//! | what counts | the condition |
//! | --- | --- |
//! | an error, a status of 400 or above, a gRPC status other than OK | `response.is_failure()` |
//! | these statuses | `matches!(response.status().as_u16(), 401 \| 403)` |
//! | a form that is shown again with a status of 200 | `response.header("x-login") == Some("failed")`, a field that the handler sets |
//! | a redirect back to the form | `response.header("location").is_some_and(\|to\| to.starts_with("/login"))` |
//! | UNAUTHENTICATED, in gRPC | `response.grpc_status() == Some(16)` |
//! | what a cache in front of the handler did not have | `response.header("x-cache") != Some("hit")` |
//!
//! # What it guarantees
//!
//! A request takes its units first, and gets them back if its response does not count. Nothing is looked at first and counted
//! later: otherwise any number of guesses at the same time would pass. With a limit of 3, at most 3 requests of an address are
//! unanswered at a time; a fourth is denied, even if all of them will succeed. Where people share an address, set the limit wider
//! than the number of log-ins that they start within the time of one.
//!
//! - A client that hangs up before the response is counted, and so is a handler that panics: an attacker gains nothing by either.
//! - An attacker who logs in to his own account between guesses gets back what those log-ins took, and nothing of his guesses.
//! - What comes back, what lapses, and how it goes with [leases and local counts](crate::Consistency) is in the table of
//!   [`count_if`](crate::RequestRule::count_if). In short: a window or a log gives back everything, a bucket what has not
//!   refilled since, and what lapses counts.
//!
//! A response with [`Refund`](crate::Refund) does not count, whatever the condition says: with
//! [`keep_on_error`](crate::RequestRule::keep_on_error) it does. Set that if a middleware inside marks responses that a guesser can
//! provoke.
//!
//! # By account
//!
//! The account is in the body, so the handler acquires that rule, and cancels the ticket on success: see the
//! [recipe](crate::guide::recipes#a-log-in-where-only-failures-count). Keep it wider than a person needs: whoever fails log-ins in
//! another's name locks him out.
//!
//! # In gRPC
//!
//! The status of a call is in its header if the call fails at once, and in the trailers otherwise. The units are held until it is
//! known, for streams too. A call that is cut off before its status counts. Around gRPC-Web, put the layer inside of `GrpcWebLayer`:
//! outside, the trailers are a part of the body, and such a call counts.
//!
//! # Paying by response
//!
//! [`cost_by_response`](crate::RequestRule::cost_by_response) is the same for amounts: a header field of the inner service says what
//! the request has cost, and the difference goes back or is taken. Here a request for a model takes 400 tokens and pays what it
//! used; a cached answer is free.
//!
//! ```
//! use axum::{Router, body::Body, response::IntoResponse, routing::post};
//! use http::Request;
//! use tollgate::{Key, MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, key::constant};
//! use tower::ServiceExt;
//!
//! async fn complete(prompt: String) -> impl IntoResponse {
//!     let cached = prompt == "hello";
//!     let used = if cached { 0 } else { prompt.len() };
//!     ([("x-tokens-used", used.to_string())], "…")
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let rule = Rule::new("tokens", Quota::sliding_window(1_000, MINUTE))
//!         .cost(400)
//!         .by(constant("all"))
//!         .cost_by_response(|response| response.header("x-tokens-used")?.parse().ok());
//!     let limits = RateLimitLayer::new(MemoryStore::new(), [rule])?;
//!     let app = Router::new().route("/complete", post(complete)).layer(limits.clone());
//!
//!     for prompt in ["hello", "a prompt of 28 tokens or so.", "hello"] {
//!         let request = Request::post("/complete").body(Body::from(prompt))?;
//!         assert!(app.clone().oneshot(request).await?.status().is_success());
//!     }
//!     let head = Request::post("/complete").body(())?.into_parts().0;
//!     let key: Key = limits.key_of("tokens", &head).expect("it has a key");
//!     let check = limits.limiter().check("tokens", &key)?.with_cost(0);
//!     assert_eq!(limits.limiter().peek(&[check]).await.verdicts()[0].remaining(), 1_000 - 28);
//!     Ok(())
//! }
//! ```
