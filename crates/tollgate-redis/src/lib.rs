//! Limits that many processes share: a store on Redis or Valkey.

#![cfg_attr(
    not(test),
    expect(dead_code, reason = "the store that stands on the connection follows")
)]

mod address;
mod connection;

#[cfg(test)]
#[path = "../tests/connection/mod.rs"]
mod connection_tests;
