//! Limits that many processes share: a store on Redis or Valkey.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod address;
// Public for the tests that hold the script to the core; no part of what this crate promises.
#[doc(hidden)]
pub mod call;
mod connection;
#[doc(hidden)]
pub mod encode;
mod error;
#[doc(hidden)]
pub mod keyspace;
mod observe;
#[doc(hidden)]
pub mod reply;
#[doc(hidden)]
pub mod script;
mod store;

pub use self::{
    connection::breaker::BreakerState,
    error::{SetupError, SetupErrorKind},
    keyspace::Partition,
    store::{RedisStore, RedisStoreBuilder},
};

#[cfg(test)]
#[path = "../tests/connection/mod.rs"]
mod connection_tests;
