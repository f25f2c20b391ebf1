//! The memory store: limits in one process.
//!
//! One table per rule name; entries of fingerprint, state and the quota that wrote it; shards behind mutexes. A request
//! locks its shards in one order, decides all its checks, and takes all or nothing. A denial of a key that is over its
//! limit is decided from loads, without a lock: under attack the limiter is at its cheapest.
//!
//! Memory is bounded in bytes per rule. A state that equals a fresh one is forgotten a few at a time while new keys come;
//! nothing runs in the background. Where the bound forces a live state out, it is the one nearest to fresh of a sample,
//! and [`Usage::evicted_live`](crate::Usage) counts it.
//!
//! A rule name that no limiter or layer uses any more keeps its states until they equal fresh ones, so that a limiter that
//! is dropped and made again forgets nothing. They are packed, at some 32 bytes a key, and all such names together have the
//! bound of one rule; over it, the name goes whose states are the nearest to fresh.
//! [`MemoryStore::unbound_usage`] says what is kept.

mod bound;
mod family;
mod hasher;
#[cfg(all(test, tollgate_shuttle))]
mod schedules;
mod shard;
mod slots;
mod store;
mod table;
mod unbound;

pub use self::store::{MemoryStore, MemoryStoreBuilder};
