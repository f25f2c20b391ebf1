//! What this process answers alone, in front of Redis.
//!
//! The protocols are those of [`tollgate_prefilter`]; here are the tables of keys and the order in which they are asked.

mod bloom_filter;
pub(crate) mod deny;
pub(crate) mod filter;
mod key_table;
mod leases;
mod maintenance;
mod plans;
pub(crate) mod process_clock;
pub(crate) mod refunds;
mod replies;
pub(crate) mod reports;
mod scheduled;
pub(crate) mod split;
mod store_time;
pub(crate) mod table_key;
#[cfg(test)]
mod tests;
mod wait;
mod windows;
