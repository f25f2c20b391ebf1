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
mod keys;
#[doc(hidden)]
pub mod keyspace;
#[doc(hidden)]
pub mod new_keys;
mod observe;
mod packed;
mod plain;
#[doc(hidden)]
pub mod reply;
mod rotation;
mod rule_line;
#[doc(hidden)]
pub mod script;
mod secret;
mod store;

pub use self::{
    connection::breaker::BreakerState,
    error::{SetupError, SetupErrorKind},
    keys::Keys,
    keyspace::Partition,
    secret::{Secret, SecretError},
    store::{RedisStore, RedisStoreBuilder},
};

#[cfg(test)]
#[path = "../tests/connection/mod.rs"]
mod connection_tests;
