//! The engine: everything that a process decides locally, as one value without I/O.
//!
//! The way of a request:
//!
//! 1. `begin`: a request of several checks is denied if the deny cache denies one; then units of this process are reserved, and the
//!    deny cache is asked for the rest. What is left is a query
//! 2. `query`: `fill` adds what goes along in the call: reports, leases that go back, queries for new ones
//! 3. `learn` is told what the store answered, or that it did not
//! 4. `query`: `finish` makes the decision; where it is a denial, `request` gives back what was reserved

pub(crate) mod begin;
#[allow(clippy::module_inception, reason = "the file is named after its type")]
pub(crate) mod engine;
pub(crate) mod entry;
pub(crate) mod learn;
pub(crate) mod limit;
pub(crate) mod local_rules;
pub(crate) mod process_slots;
pub(crate) mod query;
pub(crate) mod request;
#[cfg(test)]
mod tests;
