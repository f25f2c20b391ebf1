//! Choosing: the algorithm, the key, the place of the layer, and what clients are told.
//!
//! # Which algorithm
//!
//! Go down the list and take the first line that fits. What each one promises, its worst case and its size are on the page
//! of the [algorithms](crate::algorithm).
//!
//! 1. *A few attempts, and not one more in any window* (log-ins, codes by SMS): [`Quota::sliding_log`]. It remembers each
//!    unit, so it is for small limits.
//! 2. *Never more than N in any window, N large*: [`Quota::sliding_buckets`]. It keeps the same promise at a fixed size, and
//!    may deny a little early.
//! 3. *A steady rate with some slack* (most APIs): [`Quota::gcra`] or [`Quota::token_bucket`]. They are the same machine in
//!    two ways of speaking: "600 a minute, 50 at once", or "a bucket of 50 that gets 10 back each second".
//! 4. *Something downstream drains at a fixed rate*: [`Quota::leaky_bucket`]. It denies what would overflow; it does not
//!    delay.
//! 5. *"1 000 an hour", as in a contract, and an estimate is good enough*: [`Quota::sliding_window`].
//! 6. *The contract means the clock hour*, and up to twice the limit across the turn of the hour does no harm:
//!    [`Quota::fixed_window`].
//!
//! Without a reason for another one, take `gcra`, and set its [`burst`](crate::Quota::burst): without one it is the limit, and
//! a client that has paused gets nearly twice the limit in the next window. Lines 5 and 6 have the same worst case; lines 1 and
//! 2 never let more than the limit pass.
//!
//! A large window alone lets everything come at once: 10 000 an hour may be 10 000 in the first second. Put a second rule
//! with a short window beside it.
//!
//! # Which key
//!
//! Count by what costs an attacker something.
//!
//! | key | good for | mind |
//! | --- | --- | --- |
//! | [client address](crate::key::client_ip()) | what comes before authentication | offices and mobile networks share one address behind NAT, so keep it wide; one host owns an IPv6 /64, which is why /64 counts as one client; behind a proxy, say so |
//! | [API key](crate::key::header()) | programs | only behind the code that has checked the key |
//! | account | people; log-in attempts | whoever can fail log-ins in another's name can lock him out: keep it wider than a person needs |
//! | tenant | fair shares between customers | one user of a tenant can use it all up; add a rule per account |
//! | [constant](crate::key::constant()) | a whole route, a provider behind it | one client can use it all up; add a rule per client |
//!
//! Two faults are common enough to name:
//!
//! - **A header that the client invents.** Counting by `x-api-key` before anybody has checked it gives a new budget for each
//!   made-up value. It also lets a stranger use up the budget of a key that he only has to know, not own.
//! - **A claim that nobody has verified.** The subject of a token whose signature was not checked is such a header.
//!
//! Let the middleware that authenticates put what it has verified into the request's extensions, and count by
//! [`extension`](crate::key::extension()).
//!
//! A request may have no key. What happens then is up to the rule:
//!
//! | [`when_missing`](crate::RequestRule::when_missing) | such requests | take it when |
//! | --- | --- | --- |
//! | [`Shared`](crate::Missing::Shared), the default | count together | strangers are welcome, up to a point |
//! | [`Reject`](crate::Missing::Reject) | are refused with a status | the key is required anyway |
//! | [`Skip`](crate::Missing::Skip) | are not limited by this rule | another rule covers them; else leaving the key out is a way around. A key that is sent twice is not left out, and neither is one that the service is not set up to find: such requests count together |
//!
//! A key may also be looked up, and the look-up may fail or take too long:
//! [`look_up_deadline`](crate::RateLimitLayer::look_up_deadline) says what happens to the request then.
//!
//! # Before or behind authentication
//!
//! | order | what an attacker can do |
//! | --- | --- |
//! | limit by address, then authenticate | nothing that is not his address's. With many addresses he still gets many attempts |
//! | authenticate, then limit by account | call the authentication as often as he likes, password hash and database included: requests without credentials never reach the limit |
//! | limit by address, authenticate, limit by account | neither |
//!
//! So do both, as two layers: a wide one by address in front, a narrow one by account behind. A log-in is the case in
//! between, since the account is in the body: see [`by_handler`](crate::Rule::by_handler) and the
//! [recipe](crate::guide::recipes#a-log-in-by-address-and-by-account).
//!
//! # One layer or two
//!
//! All rules of one layer are decided together: the request passes all of them, or none is debited. Two layers are two
//! decisions, and the outer one keeps its debit when the inner one denies.
//!
//! Take one layer for rules that belong together ("per key and per tenant"). Use [`when`](crate::RequestRule::when) to
//! select among the routes it covers. Take two layers where something has to happen in between, such as authentication.
//!
//! The budget is the rule's name on a store, not the layer. Two layers that use the same name on clones of one store share
//! one budget.
//!
//! # Order of layers
//!
//! From the outside in:
//!
//! | layer | why there |
//! | --- | --- |
//! | tracing, request ids, panic handling | denials belong into the access log |
//! | CORS | a denial without `Access-Control-Allow-Origin` is a bare network error to a script, and preflights are answered before they are counted |
//! | timeout | covers remote stores as well; inside of the limits, what times out is [given back](#load-shedding) |
//! | limit by address | before anything expensive |
//! | authentication | |
//! | limit by account or tenant | needs what authentication has found out |
//! | load shedding, and a concurrency limit or buffer inside of it | a denied request must not take a place, nor [wait for one](#load-shedding) |
//! | body limits, decompression, compression | a denied request must not cost them |
//! | handler | |
//!
//! On one route of axum, take `post(handler).route_layer(limits)`. With `post(handler).layer(limits)` the answer to other
//! methods, 405, is limited as well: a page with images that point at a log-in would use up its visitor's log-ins.
//!
//! Mind who is outermost. In `tower::ServiceBuilder` it is the layer written *first*; with axum's `Router::layer` it is the
//! one added *last*. `Router::layer` wraps only routes that were added before it.
//!
//! # Load shedding
//!
//! A Tower service is asked whether it is ready before it gets the request. So a layer cannot deny before everything inside of
//! it is ready: directly around a concurrency limit that is full, a denial waits for a place that it does not need. Put load
//! shedding between them: it is always ready, and answers at once where there is no place.
//!
//! ```
//! use std::time::Duration;
//! use axum::{
//!     BoxError, Extension, Router, body::Body, error_handling::HandleErrorLayer,
//!     http::{Request, StatusCode}, response::IntoResponse, routing::get,
//! };
//! use tollgate::{MINUTE, MemoryStore, Protocol, Quota, RateLimitLayer, Refund, Rule, key::header};
//! use tower::{ServiceBuilder, ServiceExt, limit::GlobalConcurrencyLimitLayer};
//!
//! /// No place is free. `Refund` gives back what the limits have taken for the request.
//! async fn shed(_: BoxError) -> impl IntoResponse {
//!     (StatusCode::SERVICE_UNAVAILABLE, Extension(Refund), "busy; try again")
//! }
//!
//! // Tokio's clock is paused, so that this program waits for nothing; leave that out in a service.
//! #[tokio::main(flavor = "current_thread", start_paused = true)]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let rule = Rule::new("per-key", Quota::gcra(1, MINUTE)).by(header("x-api-key"));
//!     let limits = RateLimitLayer::new(MemoryStore::new(), [rule])?.protocol(Protocol::Http);
//!     let app = Router::new()
//!         .route("/", get(|| tokio::time::sleep(Duration::from_secs(5))))
//!         .layer(
//!             ServiceBuilder::new()
//!                 .layer(limits)
//!                 .layer(HandleErrorLayer::new(shed))
//!                 .load_shed()
//!                 // One for all routes; `concurrency_limit(1)` would be one for each.
//!                 .layer(GlobalConcurrencyLimitLayer::new(1)),
//!         );
//!
//!     let send = |key: &str| {
//!         let request = Request::get("/").header("x-api-key", key).body(Body::empty());
//!         let answer = app.clone().oneshot(request.unwrap());
//!         async { answer.await.unwrap().status() }
//!     };
//!     let working = tokio::spawn(send("one"));
//!     tokio::time::sleep(Duration::from_secs(1)).await;
//!     let before = tokio::time::Instant::now();
//!     // Denied, and shed, while the only place is taken.
//!     assert_eq!(send("one").await, StatusCode::TOO_MANY_REQUESTS);
//!     assert_eq!(send("two").await, StatusCode::SERVICE_UNAVAILABLE);
//!     assert!(before.elapsed().is_zero());
//!     assert_eq!(working.await?, StatusCode::OK);
//!     // Who was shed has used nothing up.
//!     assert_eq!(send("two").await, StatusCode::OK);
//!     Ok(())
//! }
//! ```
//!
//! **What was not served is given back.** Where the inner service answers with an error, or a response carries a
//! [`Refund`](crate::Refund) in its extensions, what the layers outside have taken for the request goes back (of a bucket, what
//! it [has not refilled since](crate::Ticket#accuracy)). Without axum no
//! handler is needed: `limits`, `load_shed` and `concurrency_limit` in this order, and the error goes on to whoever handles it.
//! There a place is held for as long as a remote store decides; the handler above also keeps that from happening, because it is
//! always ready itself.
//!
//! **What a client can gain by it.** Whoever can make the service fail is not counted for it. Load that was shed has cost
//! nothing. But a timeout *inside* of the limits is an error as well, after the work was done: put it outside, or
//! [keep](crate::RequestRule::keep_on_error) what the rule took. Keep it too where a failure tells something, as with
//! log-ins. A body limit or a decoder inside that fails gives a client a free attempt for each bad body; that is worth no more
//! than its parsing. An axum handler that returns an error has answered, and nothing is given back for that. Nor is it for a
//! client that hangs up.
//!
//! # When the store fails
//!
//! A store in memory never fails. For a store that can, each rule says what happens then, with
//! [`on_store_error`](crate::Rule::on_store_error):
//!
//! | route | answer | why |
//! | --- | --- | --- |
//! | an ordinary API | [`LocalShare`](crate::OnStoreError::LocalShare), the default | each instance counts its part of the quota; say how many there are with [`instances`](crate::RateLimitLayer::instances) |
//! | log-in, sign-up, codes by SMS | [`Deny`](crate::OnStoreError::Deny) or a small [`Cap`](crate::OnStoreError::Cap) | an outage must not open the door to guessing |
//! | a call that costs you money | [`Cap`](crate::OnStoreError::Cap) | a known ceiling |
//! | cheap public reads | [`Allow`](crate::OnStoreError::Allow) | being up matters more than being exact |
//! | where the handler can save effort | [`Degraded`](crate::OnStoreError::Degraded) | passes, and the [`Admission`](crate::Admission) says so |
//!
//! The answer may depend on the request: reads fail open and writes fail closed on one budget, with
//! [`on_store_error_when`](crate::RequestRule::on_store_error_when).
//!
//! A denial for this reason is a 503, not a 429: the client did nothing wrong.
//!
//! # What to tell whom
//!
//! Header fields help honest clients to pace themselves. They are hints, and enforce nothing.
//!
//! | who | take |
//! | --- | --- |
//! | clients of an API | [`DRAFT_11`](crate::HeaderStyle::DRAFT_11), the default, with an older [style](crate::header) beside it if they read one |
//! | browsers on another origin | the same, and [`exposed_headers`](crate::header::exposed_headers) in the CORS layer |
//! | log-in, password reset, sign-up | [`quiet`](crate::RateLimitLayer::hide_quota): numbers tell a guesser how to pace himself, and whether others try the same account |
//! | strangers, where a rule counts everybody together | [`HeaderStyle::NONE`](crate::HeaderStyle::NONE): what is left of a shared budget tells how close you are to falling over |
//!
//! `Retry-After` is sent in all of these cases. Rule names go to clients too, in header fields and in bodies, so do not name
//! a rule after a secret.
//!
//! A service without gRPC says so, by [`protocol(Protocol::Http)`](crate::RateLimitLayer::protocol). A client is told in the
//! protocol that it claims to speak, and a denial in gRPC is an HTTP 200: with a forged `content-type: application/grpc` a
//! denied client would count as served in your access log.
//!
//! **Jitter.** Clients that were denied together come back together. Where many wait for one budget,
//! [`retry_after_jitter(20)`](crate::RateLimitLayer::retry_after_jitter) adds up to a fifth to each wait, always the same
//! part for the same client, and never sends anyone back too early.
//!
//! # How much memory
//!
//! A rule may take 64 MiB unless [`bytes_per_rule`](crate::MemoryStoreBuilder::bytes_per_rule) says otherwise. It takes what
//! it uses, not all of it at the start.
//!
//! | algorithm | bytes for each key | keys in 64 MiB, at least |
//! | --- | --- | --- |
//! | buckets, windows of counters | 43 to 64 | 1 000 000 |
//! | sliding window in 60 sub-buckets | about 300 to 325 | 200 000 |
//! | sliding log | about 125, and 16 for each instant it remembers | 300 000 with 5 instants |
//!
//! Count the keys that are active within one window, or within the time from empty to full of a bucket: a key that is fresh
//! again is forgotten. If a flood could bring more, see
//! [what happens at the bound](crate::guide::operating#memory-and-evictions).
//!
//! [`Quota::sliding_log`]: crate::Quota::sliding_log
//! [`Quota::sliding_buckets`]: crate::Quota::sliding_buckets
//! [`Quota::gcra`]: crate::Quota::gcra
//! [`Quota::token_bucket`]: crate::Quota::token_bucket
//! [`Quota::leaky_bucket`]: crate::Quota::leaky_bucket
//! [`Quota::sliding_window`]: crate::Quota::sliding_window
//! [`Quota::fixed_window`]: crate::Quota::fixed_window
