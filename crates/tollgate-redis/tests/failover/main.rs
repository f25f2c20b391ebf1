//! A service keeps asking while another server takes over, or a slot does.
//!
//! What may pass is said at `support::service`. A fail-over loses what the old server had counted and the new one was not
//! told of.

#[path = "../support/mod.rs"]
mod support;

mod cluster;
mod sentinel;
mod slots;
mod split;
