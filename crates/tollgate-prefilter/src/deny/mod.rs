//! The deny cache: denials that need no call.

pub(crate) mod block_cache;
pub(crate) mod deny_cache;
