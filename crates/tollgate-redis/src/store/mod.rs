//! The store: rules on a connection.

mod accuracy;
mod backend;
mod bound;
mod builder;
mod debits;
mod doubt;
mod flush;
mod follow;
mod heartbeat;
mod inner;
mod instances;
mod keeper;
mod meter;
mod question;
mod quotas;
mod redis_store;
mod shared;
mod turns;
mod unasked;
mod under_way;

pub use self::{accuracy::Accuracy, builder::RedisStoreBuilder, redis_store::RedisStore};
