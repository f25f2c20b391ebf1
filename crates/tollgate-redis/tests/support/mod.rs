//! What the tests of the store share.

#![allow(dead_code, reason = "each test takes what it needs")]

pub(crate) mod blocking_server;
pub(crate) mod numbers;
pub(crate) mod resp;
