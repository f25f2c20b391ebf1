//! The store: rules on a connection.

mod backend;
mod bound;
mod builder;
mod heartbeat;
mod inner;
mod instances;
mod keeper;
mod redis_store;
mod shared;
mod turns;

pub use self::{builder::RedisStoreBuilder, redis_store::RedisStore};
