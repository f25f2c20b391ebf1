//! Servers of other kinds, as the tests of the store start them.

#![allow(dead_code, reason = "those tests take more of it")]

#[path = "../../../../tollgate-redis/tests/support/blocking_server.rs"]
pub(crate) mod blocking_server;
#[path = "../../../../tollgate-redis/tests/support/bus_proxy.rs"]
pub(crate) mod bus_proxy;
#[path = "../../../../tollgate-redis/tests/support/eventually.rs"]
pub(crate) mod eventually;
#[path = "../../../../tollgate-redis/tests/support/moving_slot.rs"]
pub(crate) mod moving_slot;
#[path = "../../../../tollgate-redis/tests/support/redis_cluster.rs"]
pub(crate) mod redis_cluster;
#[path = "../../../../tollgate-redis/tests/support/redis_server.rs"]
pub(crate) mod redis_server;
#[path = "../../../../tollgate-redis/tests/support/sentinels.rs"]
pub(crate) mod sentinels;
