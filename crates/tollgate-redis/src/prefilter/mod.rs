//! What this process answers alone, in front of Redis.
//!
//! The protocols are those of [`tollgate_prefilter`]; here are the tables of keys and the order in which they are asked.

pub(crate) mod deny;
pub(crate) mod filter;
pub(crate) mod keyed;
mod leases;
mod reports;
#[cfg(test)]
mod seams;
mod store_time;
