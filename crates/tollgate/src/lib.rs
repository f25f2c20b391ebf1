//! Rate limits for Rust services: a [Tower](https://docs.rs/tower) layer for [axum](https://docs.rs/axum) and
//! [tonic](https://docs.rs/tonic) that decides, before the work starts, whether a request may proceed, and tells the client what it
//! has left.
//!
//! ```no_run
//! use std::net::SocketAddr;
//!
//! use axum::{Router, routing::get};
//! use tollgate::{HOUR, MemoryStore, Quota, RateLimitLayer, Rule, SECOND, key::client_ip};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // Two limits, one decision: a request that one of them denies is not counted by the other.
//!     let burst = Rule::new("burst", Quota::gcra(1, SECOND).burst(5)).by(client_ip());
//!     let hourly = Rule::new("hourly", Quota::sliding_window(1_000, HOUR)).by(client_ip());
//!     let limits = RateLimitLayer::new(MemoryStore::new(), [burst, hourly])?;
//!     let app = Router::new().route("/", get(|| async { "hello\n" })).layer(limits);
//!
//!     let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
//!     // `client_ip()` is the address of the connection. Behind a proxy, tell it which one to trust.
//!     let service = app.into_make_service_with_connect_info::<SocketAddr>();
//!     Ok(axum::serve(listener, service).await?)
//! }
//! ```
//!
//! It takes the feature `axum`. The sixth request within a second gets a 429 with `retry-after: 1`, and a client that waits for it
//! passes. State is in memory, exact and bounded. There is nothing to spawn and nothing to clean up.
//!
//! | for | take |
//! | --- | --- |
//! | a limit that many processes share | [tollgate-redis](https://docs.rs/tollgate-redis): `RedisStore` in the place of `MemoryStore`, on Redis or Valkey |
//! | limits in a file that changes while the service runs | [tollgate-rules](https://docs.rs/tollgate-rules) |
//! | requests to the servers of others | [tollgate-client](https://docs.rs/tollgate-client): a layer that obeys their limits, and retries |
//! | workers and queues, without HTTP; a store of your own; types that programs seldom name | [tollgate-core](https://docs.rs/tollgate-core); this crate re-exports its other names |
//! | rules to check, explain and size; keys to look up | [tollgate-cli](https://docs.rs/crate/tollgate-cli): the program `tollgate` |
//!
//! The [guide] has a page for each thing you may want to do, such as [choosing a limit](guide::choosing) and
//! [recipes](guide::recipes), and one on [when not to use this](guide::choosing#when-not-to-use-this). The
//! [glossary](guide#glossary) says what the words mean.
//!
//! # The parts
//!
//! - A [`Quota`] is an algorithm with its numbers. [`algorithm`](tollgate_core::algorithm) has a page on each.
//! - A [`Rule`] is a named quota. The name identifies the budget: one name on one store is one budget, wherever it is used.
//! - [`Rule::by`] adds the key: see [`key`].
//! - A [`RateLimitLayer`] takes rules and a store. Neither it nor its service has a type parameter, except for the inner service.
//!   [`RateLimitLayer::per_ip`] is the shortest way to a limit.
//! - A [`MessageLimitLayer`](message::MessageLimitLayer) limits the messages in gRPC streams by the same rules: see [`message`].
//! - A [`Limiter`] is the same without HTTP, for workers and handlers. [`RateLimitLayer::limiter`] is that of the layer.
//!
//! ```text
//! request ──▶ RateLimitLayer           which checks does it need?       (key, cost, plan)
//!                  │ checks
//!                  ▼
//!             Limiter                  all rules pass, or nothing is taken
//!                  │
//!                  ▼
//!             Store                    MemoryStore: state by rule name and key
//!                  │ decision
//!                  ▼
//!          Allow: inner service, then header fields       Deny: rejection, Retry-After, header fields
//! ```
//!
//! Denials are responses: the service's error type is that of the inner service. Requests are refunded if the inner service
//! fails, or if a response has the extension [`Refund`](service::Refund).
//!
//! | you want to | see |
//! | --- | --- |
//! | choose what a denial looks like, and the header fields | [`rejection`], [`header`] |
//! | limit gRPC: a server, a service, a method, a stream | the [guide](guide::grpc); the layer denies calls [in gRPC](rejection#grpc) |
//! | check a rule in a handler, or settle the real cost | [`Admission`], [`Ticket`](decision::Ticket) |
//! | change rules while requests are served | [`RateLimitLayer::handle`], [`LiveLimiter`]; a [`Quota`] is also text: `"gcra 100/min burst 20".parse()` |
//! | find the place of the layer | the [order of layers](guide::choosing#order-of-layers): by address in front of authentication, by account behind it |
//! | shed load by priority | [`shed`] |
//!
//! # Features
//!
//! None is on by default. Features only add API; they change no response.
//!
//! | feature | adds |
//! | --- | --- |
//! | `axum` | the peer's address from `ConnectInfo`, the extractors `matched_path` and `path_parameter`, [`Admission`] as an argument of handlers, [`Denied`] as a response |
//! | `tonic` | the peer's address from tonic's server, `NamedService`, [`Denied`] as a `tonic::Status`, the status of a stream that was cut off for its handler |
//! | `metrics` | [counters and histograms](guide::operating#metrics) through the `metrics` facade |
//! | `tracing` | [events](guide::operating#events) for denials and errors |
//! | `calendar` | quotas by the days, weeks, months and years of a time zone: `Quota::calendar` |
//! | `serde` | top keys can be serialised; a [`Quota`] is a text in documents |
//! | `uuid` | `Uuid` as a part of a [`Key`] |
//!
//! # A customised one
//!
//! Two rules that are decided together, by the caller that an outer middleware has verified; a higher cost for writes; older
//! header fields in addition to the new ones; a plain text body; jitter; and a handler that reads the remaining units.
//!
//! ```
//! use http::{Method, Request, Response, StatusCode};
//! use tollgate::{
//!     Admission, MINUTE, MemoryStore, Missing, Quota, RateLimitLayer, Rejection, Rule, SECOND,
//!     clock::ManualClock, header::HeaderStyle, key::extension_with,
//! };
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! #[derive(Clone)]
//! struct Caller {
//!     key: &'static str,
//!     tenant: &'static str,
//! }
//!
//! async fn handle(request: Request<String>) -> Result<Response<String>, std::convert::Infallible> {
//!     let admission = request.extensions().get::<Admission>();
//!     let left = admission.and_then(|admission| Some(admission.verdict("per-key")?.remaining()));
//!     Ok(Response::new(format!("{left:?}")))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = ManualClock::new(1_700_000_000_000_000);
//! let store = MemoryStore::builder().clock(&clock).bytes_per_rule(8 << 20).build();
//! let limits = RateLimitLayer::new(
//!     store,
//!     [
//!         Rule::new("per-key", Quota::token_bucket(10).refill(5, SECOND))
//!             .by(extension_with(|caller: &Caller| Some(caller.key)))
//!             .when_missing(Missing::Reject(StatusCode::UNAUTHORIZED))
//!             .cost_by(|head| if head.method == Method::GET { 1 } else { 4 }),
//!         Rule::new("per-tenant", Quota::sliding_window(1_000, MINUTE))
//!             .by(extension_with(|caller: &Caller| Some(caller.tenant)))
//!             .when_missing(Missing::Reject(StatusCode::UNAUTHORIZED)),
//!     ],
//! )?
//! .headers(HeaderStyle::DRAFT_11 | HeaderStyle::X_RATELIMIT_EPOCH)?
//! .rejection(Rejection::text())
//! .retry_after_jitter(20)?
//! .attach_decision();
//! let service = ServiceBuilder::new().layer(limits).service_fn(handle);
//!
//! let post = async || {
//!     let caller = Caller { key: "k1", tenant: "acme" };
//!     let request = Request::post("/items").extension(caller).body(String::new()).unwrap();
//!     service.clone().oneshot(request).await.unwrap()
//! };
//! let first = post().await;
//! let ratelimit = first.headers()["ratelimit"].to_str()?;
//! assert!(ratelimit.starts_with(r#""per-key";r=6;t=1, "per-tenant";r=999;t="#));
//! assert_eq!(first.headers()["x-ratelimit-remaining"], "6");
//! post().await;
//! // Two are left, and this one costs four.
//! assert_eq!(post().await.status(), StatusCode::TOO_MANY_REQUESTS);
//! clock.advance(SECOND);
//! assert_eq!(post().await.status(), StatusCode::OK);
//!
//! let stranger = service.oneshot(Request::get("/items").body(String::new())?).await?;
//! assert_eq!(stranger.status(), StatusCode::UNAUTHORIZED);
//! # Ok(())
//! # }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod condition;
mod diagnostics;
pub mod guide;
mod head;
pub mod header;
mod inner_response;
mod json_text;
pub mod key;
pub mod key_list;
mod known_condition;
pub mod message;
pub mod observe;
mod path_pattern;
mod protocol;
mod rate_limit;
pub mod rejection;
mod request_rule;
mod request_settings;
mod routes;
mod rule;
pub mod shed;

pub use tollgate_core::{
    Block, Check, Consistency, DAY, Decision, HOUR, Key, Limiter, LiveLimiter, MINUTE, MemoryStore,
    OnStoreError, Quota, RuleError, SECOND, Store,
};

pub use self::{
    head::Head,
    rate_limit::{Admission, Denied, LimitsEndpoint, RateLimitLayer, RulesHandle},
    rejection::style::Rejection,
    request_rule::RequestRule,
    request_settings::Missing,
    rule::Rule,
};

pub mod clock {
    //! Where a store has its time from, and the clock that a test moves.

    pub use tollgate_core::{Clock, ManualClock};
}

pub mod decision {
    //! What a decision is made of, and what code asks of one.

    pub use tollgate_core::{
        Outcome, Pending, Reason, Retry, Source, Ticket, Verdict,
        types::{Reservation, ReservationTicket},
    };
}

pub mod error {
    //! Errors of single calls. That of rules and layers is [`RuleError`](crate::RuleError), of a [kind](RuleErrorKind).

    pub use tollgate_core::{
        RuleErrorKind,
        types::{WaitError, WaitErrorKind},
    };
}

#[cfg(feature = "calendar")]
pub mod quota {
    //! The calendar of a [`Quota`](crate::Quota).

    pub use tollgate_core::calendar::{CalendarUnit, Weekday};
}

pub mod service {
    //! What the services of a [`RateLimitLayer`](crate::RateLimitLayer) have in common, what they read of a response, and their types,
    //! for signatures.

    pub use crate::{
        inner_response::InnerResponse,
        rate_limit::{RateLimit, Refund, ResponseBody},
    };
}

pub mod store {
    //! What a [`Store`](crate::Store) is set up with and answers, for code that decides without the layer's help.
    //!
    //! A store of one's own is written against [`tollgate-core`](tollgate_core), whose module [`store`](tollgate_core::store) says how, and is tested by
    //! the suite in the folder `tests/conformance` of the repository.
    //!
    //! ```
    //! use tollgate::store::{StoreError, StoreErrorKind};
    //!
    //! // A store that is busy may be asked again; one that is set up wrongly may not.
    //! assert!(StoreError::new(StoreErrorKind::Overloaded, "busy").is_transient());
    //! assert!(!StoreError::new(StoreErrorKind::Misconfigured, "no password").is_transient());
    //! ```

    pub use tollgate_core::{LeaseShare, StoreError, StoreErrorKind, types::CheckPolicy};
}

// For tollgate-server, tollgate-console and tollgate-rules. Hidden, so that it can change in any release.
#[doc(hidden)]
pub mod siblings {
    //! For the other crates of tollgate, which do what no layer does: [tollgate-server](https://docs.rs/crate/tollgate-server) decides for the
    //! services of others, [tollgate-console](https://docs.rs/tollgate-console) shows operators what rules would do, and
    //! [tollgate-rules](https://docs.rs/tollgate-rules) makes conditions of documents.

    pub use crate::{
        key::fields::{host_of, only_line},
        key::target::path_parameter_key,
        key::trust::network,
        key_list::end_lists_by,
        known_condition::{KnownCondition, STANDARD_METHODS, path_matches, words_are},
        path_pattern::PathPattern,
        rate_limit::{
            Inspection, PartsDecision, RequestPart, RuleEffect, grpc_timeout, preview_name,
        },
        routes::Words,
    };
}

/// Compiles the program in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
