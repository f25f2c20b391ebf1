//! What stands in Redis for a client: a key of a rule as a part of a name, and in which slot of a cluster that name is.
//!
//! ```text
//! seal ── keyspace ── slot, packed
//!         └─ keys ── plain, mask ── secret
//! ```

#[allow(clippy::module_inception, reason = "the file is named after its type")]
pub(crate) mod keys;
pub(crate) mod keyspace;
mod plain;
pub(crate) mod secret;
pub(crate) mod slot;
