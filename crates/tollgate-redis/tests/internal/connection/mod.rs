//! Nodes before real servers and real trouble.

mod bench;
mod breaker;
mod cluster;
mod cluster_bench;
mod cluster_redirects;
mod cluster_slots;
mod cluster_start;
#[cfg(feature = "tls")]
mod encrypted;
mod far;
mod login;
mod network;
mod refusals;
mod sentinel;
mod server;
