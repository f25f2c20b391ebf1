//! What a store has to do, one case each. [`conformance_suite!`](crate::conformance_suite) mounts them all.

pub mod blocks;
pub mod counting;
pub mod credits;
pub mod ids;
pub mod names;
pub mod requests;
pub mod reservations;
pub mod shadows;
pub mod slots;
pub mod tasks;
pub mod tickets;
pub mod time;
pub mod waiting;
