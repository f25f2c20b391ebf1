//! The engine: everything that a process decides locally, as one value without I/O.

pub(crate) mod begin;
pub(crate) mod bound_rules;
#[allow(clippy::module_inception, reason = "the file is named after its type")]
pub(crate) mod engine;
pub(crate) mod entry;
pub(crate) mod learn;
pub(crate) mod limit;
pub(crate) mod process_slots;
pub(crate) mod query;
pub(crate) mod request;
#[cfg(test)]
mod tests;
