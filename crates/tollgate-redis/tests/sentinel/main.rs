//! A service keeps asking while sentinels let another server take over.
//!
//! What may pass is said at `support::service`. A fail-over loses what the old master had counted and the new one was not
//! told of.

#[path = "../support/mod.rs"]
mod support;

mod access;
mod failover;
mod split;
