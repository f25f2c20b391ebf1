//! Limits that many processes share: a store on Redis or Valkey for [tollgate](https://docs.rs/tollgate), the
//! [Tower](https://docs.rs/tower) layer for axum and tonic.
//!
//! ```no_run
//! use std::net::SocketAddr;
//!
//! use axum::{Router, routing::get};
//! use tollgate::{MINUTE, Quota, RateLimitLayer, Rule, key::client_ip};
//! use tollgate_redis::{Keys, RedisStore, Secret};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // Redis sees keys hashed with this secret. The store connects in the background: a service starts while Redis is down.
//!     let keys = Keys::hashed(Secret::from_env("TOLLGATE_SECRET")?);
//!     let store = RedisStore::builder("redis://localhost", "shop", keys).connect()?;
//!     let limits = RateLimitLayer::new(store, [Rule::new("per-ip", Quota::gcra(60, MINUTE)).by(client_ip())])?;
//!     let app = Router::new().route("/", get(|| async { "hello\n" })).layer(limits);
//!
//!     let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
//!     let service = app.into_make_service_with_connect_info::<SocketAddr>();
//!     Ok(axum::serve(listener, service).await?)
//! }
//! ```
//!
//! Every process that uses one namespace (`"shop"`) on one Redis counts against one limit. The rules, the layer, the limiter and the
//! answers are those of the store in memory, and so is the arithmetic: a script decides all rules of a request in one atomic
//! step on the server, to the microsecond, and is compared with the store in memory over random histories.
//!
//! | you want to | see |
//! | --- | --- |
//! | call Redis less often than once for each request | [`guide::consistency`]: leases, and local counts |
//! | choose what happens while Redis does not answer | [`Rule::on_store_error`](tollgate_core::Rule::on_store_error), [`guide::failures`] |
//! | set up a server, Sentinel, a cluster, Valkey, TLS | [`Address`], [the page on Redis](guide::redis) |
//! | know how much memory it takes, and what to watch | [memory](guide::redis#memory), [operating](https://docs.rs/tollgate/latest/tollgate/guide/operating/index.html#redis) |
//! | limit without HTTP | [`Limiter`](tollgate_core::Limiter) takes the same store |
//! | look up a word | the [glossary](https://docs.rs/tollgate/latest/tollgate/guide/index.html#glossary) |
//! | push rules through the same Redis | [tollgate-rules](https://docs.rs/tollgate-rules), feature `redis` |
//!
//! # Addresses
//!
//! | form | means |
//! | --- | --- |
//! | `redis://[user[:password]@]host[:6379][/database]` | one server |
//! | `unix://[user[:password]@]/path/to/socket[?db=database]` | one server, through a socket |
//! | `redis-sentinel://[user[:password]@]host[:26379][,host2…]/master[/database]` | the server that Sentinel names |
//! | `redis-cluster://[user[:password]@]host[:6379][,host2…]` | the servers of a cluster; see [`Partition`] for what is decided in one step there |
//!
//! With `rediss://`, `rediss-sentinel://` and `rediss-cluster://` connections are encrypted, as the configuration says that
//! `RedisStoreBuilder::tls` is given (feature `tls`). [`Address`] has all of it. Who logs in may
//! [change](RedisStoreBuilder::credentials) while a service runs.
//!
//! # Features
//!
//! | feature | adds |
//! | --- | --- |
//! | `tls` | encrypted connections, by rustls |
//! | `metrics` | what [Operating](https://docs.rs/tollgate/latest/tollgate/guide/operating/index.html#redis) lists, through the `metrics` facade |
//! | `tracing` | an event when Redis is lost and one when it is back |
//!
//! # What is promised
//!
//! While one server has the states and answers:
//!
//! 1. Never more than the quota from all processes together, within the bound that each algorithm's page states; of a rule
//!    that is [`Eventual`](tollgate_core::Consistency::Eventual), and [`guide::consistency`] says by how much.
//! 2. The rules of a request are decided in one step; if one denies, nothing is taken.
//! 3. The time is that of the server: the clocks of the processes do not matter.
//! 4. No request waits for longer than its deadline, and nothing that may have run is sent again.
//!
//! When servers fail, restart, or lose what they had acknowledged, more may pass: by how much is the subject of
//! [`guide::failures`]. [`guide`] is the operator's page.
//!
//! # A customised one
//!
//! A limiter with less patience, and rules that say what to do while Redis does not answer. Here it never does:
//!
//! ```
//! use std::{num::NonZeroU32, time::Duration};
//!
//! use tollgate::{Key, Limiter, MINUTE, OnStoreError, Quota, Rule, decision::Source};
//! use tollgate_redis::{Keys, Partition, RedisStore, Secret};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let keys = Keys::hashed(Secret::from_bytes([7; 32])?);
//! let store = RedisStore::builder("unix:///nowhere/redis.sock", "shop", keys)
//!     .deadline(Duration::from_millis(20))
//!     .partition(Partition::One)
//!     .connect()?;
//! let rules = [
//!     // Rather deny all than admit too many.
//!     Rule::new("log-in", Quota::sliding_log(5, MINUTE)).on_store_error(OnStoreError::Deny),
//!     // Each instance its part, here of two.
//!     Rule::new("search", Quota::fixed_window(60, MINUTE)).on_store_error(OnStoreError::LocalShare),
//! ];
//! let two = NonZeroU32::new(2).expect("it is not 0");
//! let limiter = Limiter::new(store, rules)?.shared_by(two)?;
//!
//! let key = Key::of("account-7");
//! let log_in = limiter.acquire(&[limiter.check("log-in", &key)?]).await;
//! assert!(!log_in.is_allowed());
//! let search = limiter.acquire(&[limiter.check("search", &key)?]).await;
//! assert!(search.is_allowed());
//! assert_eq!(search.verdicts()[0].source(), Source::Fallback);
//! assert_eq!(search.verdicts()[0].remaining(), 29);
//! # Ok(())
//! # }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod address;
mod connection;
mod credentials;
mod error;
pub mod guide;
mod keys;
mod observe;
mod script;
mod store;

// For tollgate-rules and tollgate-cli, which connect to the servers of an address by themselves. Hidden, so that they can change in
// any release.
#[doc(hidden)]
pub use self::address::{Login, Place};
pub use self::{
    address::Address,
    connection::breaker::BreakerState,
    credentials::{Credentials, CredentialsProvider},
    error::{SetupError, SetupErrorKind},
    keys::{
        keys::{Keys, Secret},
        keyspace::Partition,
    },
    script::text::TEXT as SCRIPT,
    store::{RedisStore, RedisStoreBuilder},
};
/// The version whose `ClientConfig` [`RedisStoreBuilder::tls`] takes.
#[cfg(feature = "tls")]
pub use tokio_rustls::rustls;
pub use tollgate_prefilter::{Effective, LeaseTerms, ReportTerms};

// By their path: they need what is private here, and servers, as the tests in `tests/` do.
#[cfg(test)]
#[path = "../tests/internal/mod.rs"]
mod internal_tests;

/// Compiles the program in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
