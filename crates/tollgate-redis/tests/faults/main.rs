//! Two instances of a service keep asking while their Redis is in trouble.
//!
//! What may pass of a rule, for one key and while its window lasts:
//!
//! ```text
//! admitted ≤ limit × (1 + losses) + alone
//!
//! losses   how often Redis lost the state: a restart without a file, FLUSHALL, an eviction, a fail-over to a replica that
//!          had not been told of all of it
//! alone    the sum, over the instances, of Limiter::admitted_alone
//!
//! alone    = 0                      where the rule denies while the store fails
//!          ≤ cap × instances        where it counts against a cap
//!          ≤ max(limit, instances)  where it counts against shares, if each instance knows how many there are
//!          = what was asked         where it lets pass
//! ```
//!
//! Calls whose outcome is not known do not appear: they may have taken units in Redis, and admit nothing there. They make
//! the number smaller, by at most one call's units for each.
//!
//! The order of the faults, and how long each lasts, follows from a seed, which a test that fails prints.
//! `TOLLGATE_FAULT_SEED` repeats it.

#[path = "../support/mod.rs"]
mod support;

mod fault;
mod flood;
mod once;
mod part;
mod scheduled;
mod seed;
mod sentinel;
mod site;
