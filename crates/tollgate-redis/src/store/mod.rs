//! The store: rules on a connection.

mod accuracy;
mod backend;
mod bound;
mod builder;
mod first_write;
mod flusher;
mod heartbeat;
mod in_flight;
mod in_flight_calls;
mod in_use;
mod inner;
mod instances;
mod key_tags;
mod meter;
mod process_clock;
mod quotas;
mod redis_store;
mod rules_on_redis;
mod shared;

pub use self::{accuracy::Accuracy, builder::RedisStoreBuilder, redis_store::RedisStore};
