//! The store: rules on a connection.

mod bound;
mod builder;
mod heartbeat;
mod redis_store;
mod shared;

pub use self::{builder::RedisStoreBuilder, redis_store::RedisStore};
