//! Counting alone, and telling afterwards.

pub(crate) mod local_usage;
pub(crate) mod terms;
