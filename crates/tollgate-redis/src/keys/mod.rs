//! What stands in Redis for a client: a key of a rule as a part of a name, and in which hash slot of a cluster that name is.
//!
//! ```text
//! keyspace ── keys ── plain
//! ```

#[allow(clippy::module_inception, reason = "the file is named after its type")]
pub(crate) mod keys;
pub(crate) mod keyspace;
mod plain;
