//! Redis for tests: servers, clusters and Sentinels of a test's own, and what happens to the connections to them.
//!
//! It stands on none of tollgate's crates, so that the unit tests of `tollgate-redis` can use it too. Everything here panics
//! where it fails, as a test should.

pub mod blocking_server;
pub mod bus_proxy;
pub mod certificate;
pub mod eventually;
pub mod full_backlog;
pub mod moved_server;
pub mod moving_slot;
pub mod numbers;
pub mod postgres_server;
pub mod process;
pub mod proxy;
pub mod redis_client;
pub mod redis_cluster;
pub mod redis_server;
pub mod sentinels;
