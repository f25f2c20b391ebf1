//! Limits that many processes share: a store on Redis or Valkey.

// Public for the tests that hold the script to the core; no part of what this crate promises.
#[doc(hidden)]
pub mod call;
#[doc(hidden)]
pub mod encode;
#[doc(hidden)]
pub mod keyspace;
#[doc(hidden)]
pub mod reply;
#[doc(hidden)]
pub mod script;
