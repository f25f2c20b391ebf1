//! tollgate (docs later)

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod header;
pub mod key;
pub mod rejection;

pub use tollgate_core::*;
