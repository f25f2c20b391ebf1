//! Nodes before real servers and real trouble.
//!
//! A part of the crate rather than a test of its own, because connections are private to the crate.

#[path = "../support/blocking_server.rs"]
#[allow(dead_code, reason = "it is for the tests of the store too")]
pub(crate) mod blocking_server;
#[path = "../support/bus_proxy.rs"]
mod bus_proxy;
#[path = "../support/eventually.rs"]
mod eventually;
#[path = "../support/moving_slot.rs"]
#[allow(dead_code, reason = "as above")]
mod moving_slot;
#[path = "../support/proxy.rs"]
mod proxy;
#[path = "../support/redis_cluster.rs"]
#[allow(dead_code, reason = "as above")]
mod redis_cluster;
#[path = "../support/redis_server.rs"]
mod redis_server;
#[path = "../support/sentinels.rs"]
#[allow(dead_code, reason = "as above")]
mod sentinels;

mod bench;
mod breaker;
mod cluster;
mod cluster_bench;
mod cluster_redirects;
mod cluster_slots;
mod cluster_start;
#[cfg(feature = "tls")]
mod encrypted;
mod login;
mod network;
mod refusals;
mod scripts;
mod sentinel;
mod server;
