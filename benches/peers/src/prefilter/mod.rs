//! What a process answers alone in front of Redis, beside trypema's hybrid provider.

mod hybrid;
mod load;
mod local;

pub(crate) use self::{load::rows as by_consistency, local::rows as answered_here};
