//! Limits that many processes share: a store on Redis or Valkey.

#![cfg_attr(
    not(test),
    expect(dead_code, reason = "the store that stands on the connection follows")
)]

mod address;
// Public for the tests that hold the script to the core; no part of what this crate promises.
#[doc(hidden)]
pub mod call;
mod connection;
#[doc(hidden)]
pub mod encode;
mod keys;
#[doc(hidden)]
pub mod keyspace;
#[doc(hidden)]
pub mod new_keys;
mod packed;
mod plain;
#[doc(hidden)]
pub mod reply;
mod rotation;
mod rule_line;
#[doc(hidden)]
pub mod script;
mod secret;

pub use crate::{
    keys::Keys,
    secret::{Secret, SecretError},
};

#[cfg(test)]
#[path = "../tests/connection/mod.rs"]
mod connection_tests;
