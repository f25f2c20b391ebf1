//! The memory store: limits in one process.
//!
//! One table per rule name; entries of fingerprint, state and the quota that wrote it; shards behind mutexes. A request
//! locks its shards in one order, decides all its checks, and takes all or nothing. A denial of a key that is over its
//! limit is decided from loads, without a lock: under attack the limiter is at its cheapest.
//!
//! # Memory is bounded
//!
//! Each rule has a byte limit that clients cannot exceed. Expired entries, whose state equals a fresh one, are removed a few at a
//! time while new keys come, and whenever [`RuleStore::usage`](crate::store::RuleStore::usage) is called; nothing runs in the
//! background. At the limit, an entry has to go before another is added. A sample of eight is taken: expired entries are evicted
//! first, then the least-used ones; entries that deny at present go last, whatever the algorithm. So a flood of invented keys
//! unblocks no client, unless most of the table is locked out. Each eviction of a live entry increments
//! [`Usage::evicted_live`](crate::store::Usage).
//!
//! Used units and denials are those of the quota that wrote the entry. An entry denies if it has no unit left: a client with units
//! left whose request costs more counts as used, and is evicted after all that have used less. The key of the request itself is never
//! evicted to make room for it.
//!
//! ```
//! use tollgate_core::{Key, Limiter, MINUTE, MemoryStore, Quota, Rule};
//!
//! let store = MemoryStore::builder().bytes_per_rule(64 << 10).build();
//! let limiter = Limiter::new(store, [Rule::new("log-in", Quota::sliding_log(2, MINUTE))])?;
//! for _ in 0..3 {
//!     limiter.try_acquire("log-in", &Key::of(["mallory"]))?;
//! }
//! // Ten thousand invented accounts do not unblock the one that is locked out.
//! for n in 0..10_000_u32 {
//!     limiter.try_acquire("log-in", &Key::of([n.to_le_bytes()]))?;
//! }
//! assert!(limiter.rule_store().usage(0).is_some_and(|usage| usage.evicted_live > 5_000));
//! assert!(!limiter.try_acquire("log-in", &Key::of(["mallory"]))?.is_allowed());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A rule name that no limiter or layer uses any more keeps its states until they equal fresh ones, so that a limiter that
//! is dropped and created again forgets nothing. All such names together have the byte limit of one rule. Above it, the name whose
//! states are closest to fresh is evicted.

mod balances;
mod cells;
mod decide;
mod hasher;
mod locked;
mod open_records;
mod plan;
mod reservations;
mod rule_store;
mod rule_table;
mod shard;
mod side_tables;
pub(crate) mod store;
mod table;
mod tables;
mod take;

pub(crate) use self::store::MemoryStore;
pub use self::store::MemoryStoreBuilder;
