//! Counting alone, and telling afterwards.

pub(crate) mod tally;
pub(crate) mod terms;
