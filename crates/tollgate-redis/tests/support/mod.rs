//! Services and processes on the store, for the tests that put it under load. Servers are in `tollgate-test-servers`.

#![allow(dead_code, reason = "each test takes what it needs")]

pub(crate) mod child;
pub(crate) mod held;
pub(crate) mod instance;
pub(crate) mod meter;
pub(crate) mod quotas;
pub(crate) mod rules;
pub(crate) mod service;
