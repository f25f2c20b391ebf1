//! Denials that need no call, and blocks.

pub(crate) mod denials;
pub(crate) mod key_block;
