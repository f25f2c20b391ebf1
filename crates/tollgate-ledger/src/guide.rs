//! The guide: the public tables, and what is promised.

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/ledger.md")]
pub mod ledger {}
