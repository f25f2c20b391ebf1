//! The deny cache: denials that need no call.

pub(crate) mod deny_cache;
