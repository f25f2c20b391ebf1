//! What stands in Redis for a client: a key of a rule as a part of a name, and in which hash slot of a cluster that name is.
//!
//! ```text
//! seal ── keyspace ── hash slot, packed
//!         └─ keys ── plain, mask ── secret
//! ```

pub(crate) mod hash_slot;
#[allow(clippy::module_inception, reason = "the file is named after its type")]
pub(crate) mod keys;
pub(crate) mod keyspace;
mod plain;
pub(crate) mod secret;
