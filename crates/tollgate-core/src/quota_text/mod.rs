//! Quotas as text: `gcra 100/min burst 20`.
//!
//! ```text
//! quota     = calendar | "unlimited" | "none" ["until" time] | "concurrent" slots ["typically" period] | [algorithm] units "/" period ["burst" units] ["buckets" number]
//! calendar  = ["calendar"] units "/" ("day" | "week" | "month" | "year") [zone] ["from" day]
//! algorithm = "gcra" | "token_bucket" | "leaky_bucket" | "fixed_window" | "sliding_window" | "sliding_buckets" | "sliding_log"
//! period    = unit | (number unit)+                        10s, 1h30min, day
//! time      = 2026-12-24T00:00Z                           in UTC; seconds, and parts of one, may follow
//! unit      = "us" | "ms" | "s" | "min" | "h" | "d" | "w", and their names
//! ```

#[cfg(feature = "calendar")]
mod calendar;
mod parse;
mod period;
mod print;
mod word;

#[cfg(test)]
mod tests;

pub use self::word::ParseQuotaError;
