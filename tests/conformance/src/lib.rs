//! The suite that every store of tollgate has to pass, and a remote store to try it on. How to write a store
//! is the subject of [`tollgate_core::store`]; [tollgate-redis](https://docs.rs/tollgate-redis) is one. The
//! [glossary](https://docs.rs/tollgate/latest/tollgate/guide/index.html#glossary) says what the words mean.
//!
//! [`conformance_suite!`](conformance_suite) makes one test of each of the [`cases`]. It wants the crate `tokio`
//! among the dependencies of the tests, and an `async` function that makes a new, empty store which follows a clock:
//!
//! ```
//! use tollgate_conformance::conformance_suite;
//! use tollgate_core::{Clock, MemoryStore};
//!
//! async fn memory(clock: Clock) -> MemoryStore {
//!     MemoryStore::builder().clock(clock).build()
//! }
//!
//! conformance_suite!(memory);
//! # assert!(std::any::type_name_of_val(&memory).ends_with("memory"));
//! ```
//!
//! A store that follows a clock of its own takes `own_clock`, which leaves out the cases that move the time; every other
//! case counts in windows of ten years. An attribute chooses the runtime:
//!
//! ```
//! use std::time::Duration;
//! use tollgate_conformance::{RemoteStore, conformance_suite};
//! use tollgate_core::{Clock, MemoryStore};
//!
//! async fn remote(_clock: Clock) -> RemoteStore {
//!     RemoteStore::new(MemoryStore::new()).delay(Duration::from_millis(2))
//! }
//!
//! conformance_suite!(remote, own_clock, #[tokio::test(flavor = "current_thread")]);
//! # assert!(std::any::type_name_of_val(&remote).ends_with("remote"));
//! ```
//!
//! A store that counts slots ([`Quota::concurrent`](tollgate_core::Quota::concurrent)) also mounts [`slots_suite!`](slots_suite),
//! one whose requests wait for units ([`Rule::wait`](tollgate_core::Rule::wait)) [`wait_suite!`](wait_suite), and one that keeps balances
//! ([`Rule::credits`](tollgate_core::Rule::credits)) [`credits_suite!`](credits_suite).
//!
//! [`RemoteStore`] is a memory store behind a slow, failing network, and [`SwitchedStore`] one that can be switched off: callers
//! can be tested on them without a server.

#[allow(missing_docs, reason = "the name of a case is its sentence")]
pub mod cases;
mod quotas;
mod remote;
mod subject;
mod suite;
mod switched;

pub use self::{
    remote::{Fault, RemoteStore},
    subject::Subject,
    switched::SwitchedStore,
};

/// Runs the program in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
