//! The store: rules on a connection.

mod backend;
mod bound;
mod builder;
pub(crate) mod credits;
mod first_write;
#[cfg(feature = "metrics")]
mod gauges;
mod heartbeat;
mod in_flight;
mod in_flight_calls;
mod in_use;
mod inner;
mod key_tags;
#[cfg(feature = "metrics")]
mod namespace_size;
pub(crate) mod new_key_cap;
mod process_clock;
mod process_slots;
mod quotas;
mod redis_store;
mod reservations;
mod sender;
mod shared;
mod slots;
mod store_tasks;
mod unsupported_waits;

pub use self::{builder::RedisStoreBuilder, redis_store::RedisStore};
