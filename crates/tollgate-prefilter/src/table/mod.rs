//! A bounded table of what a process keeps of keys.

pub(crate) mod bloom_filter;
pub(crate) mod key_table;
