//! Two instances of a service keep asking while their Redis is in trouble.
//!
//! What may pass of a rule is said at `tollgate_test_services::service`. Here a loss is a restart without a file, `FLUSHALL`,
//! or a memory that is full after it: all units that were counted, and so one more quota.
//!
//! The order of the faults, and how long each lasts, follows from a seed, which a test that fails prints.
//! `TOLLGATE_FAULT_SEED` repeats it.

mod counted_once;
mod fault;
mod fleet;
mod flood;
mod ids;
mod partial;
mod reservations;
