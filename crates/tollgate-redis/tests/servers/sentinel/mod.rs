//! A service keeps asking while sentinels let another server take over.
//!
//! What may pass is said at `tollgate_test_services::service`. A fail-over loses what the old master had counted and the new
//! one has not received.

mod access;
mod failover;
mod split;
