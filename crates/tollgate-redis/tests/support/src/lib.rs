//! Services on the store, for the tests that put it under load. Servers are in `tollgate-test-servers`.
//!
//! Everything here panics where it fails, as a test should.

pub mod held;
pub mod instance;
mod meter;
pub mod patient;
pub mod quotas;
pub mod rules;
pub mod service;
