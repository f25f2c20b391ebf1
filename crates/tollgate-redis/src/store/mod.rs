//! The store: rules on a connection.

mod backend;
mod bound;
mod builder;
pub(crate) mod credits;
#[cfg(feature = "metrics")]
mod gauges;
mod heartbeat;
mod in_flight;
mod inner;
#[cfg(feature = "metrics")]
mod namespace_size;
pub(crate) mod new_key_cap;
mod quotas;
mod redis_store;
mod reservations;
mod sender;
mod shared;
mod slots;
mod unsupported_waits;

pub use self::{builder::RedisStoreBuilder, redis_store::RedisStore};
