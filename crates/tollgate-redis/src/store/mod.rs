//! The store: rules on a connection.

mod accuracy;
mod backend;
mod bound;
mod builder;
mod flush;
mod flusher;
mod follow;
mod heartbeat;
mod in_flight;
mod in_flight_calls;
mod inner;
mod instances;
mod key_tags;
mod meter;
mod places;
mod process_clock;
mod quotas;
mod recheck;
mod redis_store;
mod shared;

pub use self::{accuracy::Accuracy, builder::RedisStoreBuilder, redis_store::RedisStore};
