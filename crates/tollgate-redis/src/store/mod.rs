//! The store: rules on a connection.

mod accuracy;
mod backend;
mod bound;
mod builder;
mod doubt;
mod follow;
mod heartbeat;
mod inner;
mod instances;
mod keeper;
mod meter;
mod redis_store;
mod shared;
mod turns;

pub use self::{accuracy::Accuracy, builder::RedisStoreBuilder, redis_store::RedisStore};
