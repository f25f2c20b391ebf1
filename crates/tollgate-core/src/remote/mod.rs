//! What only stores need that can fail: the rules' answers to a failure.

pub(crate) mod fallback;
mod last_seen;
