//! What the examples share.

#![expect(clippy::print_stdout, reason = "examples talk to whoever runs them")]

pub mod polite;
pub mod redis_server;
pub mod serve;
pub mod shop;
pub mod weather;
