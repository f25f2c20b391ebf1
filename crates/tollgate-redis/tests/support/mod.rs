//! What the tests of the store share.

#![allow(dead_code, reason = "each test takes what it needs")]

pub(crate) mod blocking_server;
pub(crate) mod bus_proxy;
pub(crate) mod child;
pub(crate) mod eventually;
pub(crate) mod full_backlog;
pub(crate) mod instance;
pub(crate) mod meter;
pub(crate) mod moved_server;
pub(crate) mod moving_slot;
pub(crate) mod numbers;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod quotas;
pub(crate) mod redis_client;
pub(crate) mod redis_cluster;
pub(crate) mod redis_server;
pub(crate) mod rules;
pub(crate) mod sentinels;
pub(crate) mod service;
