//! What the examples share.

#![expect(clippy::print_stdout, reason = "examples print to the terminal")]

pub mod exports;
pub mod flag_source;
pub mod metrics;
pub mod polite;
pub mod redis_server;
pub mod rules;
pub mod secret;
pub mod serve;
pub mod shop;
pub mod weather;
