//! The store: rules on a connection.

mod accuracy;
mod backend;
mod background;
mod bound;
mod builder;
mod cross_slot;
mod flush;
mod flusher;
mod follow;
mod heartbeat;
mod in_flight_calls;
mod in_flight_query;
mod in_flight_reports;
mod inner;
mod instances;
mod key_tags;
mod meter;
mod quotas;
mod recheck;
mod redis_store;
mod shared;

pub use self::{accuracy::Accuracy, builder::RedisStoreBuilder, redis_store::RedisStore};
