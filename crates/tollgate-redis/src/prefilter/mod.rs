//! What this process answers alone, in front of Redis.
//!
//! The protocols are those of [`tollgate_prefilter`]; here are the tables of keys and the order in which they are asked.

mod ahead;
pub(crate) mod deny;
pub(crate) mod filter;
mod heard;
mod keyed;
mod leases;
pub(crate) mod part;
mod plans;
pub(crate) mod process_clock;
pub(crate) mod reports;
#[cfg(test)]
mod seams;
pub(crate) mod settling;
mod sieve;
pub(crate) mod slot;
mod store_time;
mod upkeep;
mod wait;
mod windows;
