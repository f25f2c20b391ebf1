//! What the tests of the store share.

#![allow(dead_code, reason = "each test takes what it needs")]

pub(crate) mod redis_server;
