//! A page for operators of [tollgate](https://docs.rs/tollgate)'s rate limits, as a router that an application nests where it likes.
//!
//! ```no_run
//! use axum::{Router, routing::get};
//! use tollgate::{MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, key::header};
//! use tollgate_console::{Access, Console};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let per_key = Rule::new("per-key", Quota::gcra(60, MINUTE)).top_keys().by(header("x-api-key"));
//!     let limits = RateLimitLayer::new(MemoryStore::new(), [per_key])?;
//!     let console = Console::new(Access::token(&std::env::var("CONSOLE_TOKEN")?)?).layer("api", &limits);
//!     let app = Router::new()
//!         .route("/", get(|| async { "hello\n" }))
//!         .layer(limits)
//!         // Outside of the limits: who wants to see a mistake in them is not locked out by it.
//!         .nest("/tollgate", console.router());
//!
//!     let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
//!     Ok(axum::serve(listener, app).await?)
//! }
//! ```
//!
//! It says what is wrong, in words; shows each rule with its traffic and the share that it denies; finds a client by the identity at
//! hand; explains what a request would meet; and changes limits, with a reason and an entry in the audit. Nothing is added to the path
//! of a request, and without an open tab the counters are read once a minute.
//!
//! # Access
//!
//! [`Console::new`] takes an [`Access`]: a token, the application's own layer, or this machine alone. There is no default.
//!
//! # Keys
//!
//! No page shows a key in the clear, unless a rule [labels](tollgate::Rule::label) it. What an operator types to find a client is
//! hashed in that request, and is neither kept nor logged.
//!
//! # A customised one
//!
//! Rules from a document, which the page switches and overrides, and a layer of the application that knows its operators:
//!
//! ```
//! use axum::{Extension, Router};
//! use tollgate::MemoryStore;
//! use tollgate_console::{Access, Console, Operator};
//! use tollgate_rules::{Bindings, Format, LiveRules};
//!
//! let text = "version: 1\nrules: [{ name: per-key, limit: 20/s, by: header:x-api-key }]";
//! let rules = LiveRules::from_text(text, Format::Yaml, Bindings::new())?;
//! let limits = rules.layer(MemoryStore::new())?;
//! let console = Console::new(Access::by_application()).layer("api", &limits).rules(&rules);
//! assert!(format!("{console:?}").contains("by_application"));
//! // In a service, a layer that asks who it is, and lets nobody else in.
//! let admin: Router = console.router().layer(Extension(Operator::new("alice")));
//! # let _ = admin;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod access;
mod action;
mod client;
mod console;
mod explain;
mod exposition;
mod overview;
mod pages;
mod response;
mod samples;

pub use self::{
    access::{Access, AccessError},
    console::{Console, Operator},
};

/// Compiles the program in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The same of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/command-line.md")]
struct Guide;
