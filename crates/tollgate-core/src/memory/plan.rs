//! A quota made ready for a table.

use crate::{algorithm::Algorithm, memory::hasher::Hasher, quota::Quota};

/// A quota made ready.
#[derive(Clone, Debug)]
pub(super) struct Plan<A> {
    pub(super) quota: A,
    /// What tells it from other quotas: a hash of its numbers, with seeds of the store. Two quotas of a table share one with a
    /// probability of one in 2^64.
    pub(super) id: u64,
    pub(super) limit: u64,
    /// The longest time that a state of the past or present takes until it is fresh.
    pub(super) longest_reset: u64,
}

impl<A: Algorithm> Plan<A> {
    /// `None` if the quota is of another algorithm or not valid.
    pub(super) fn new(given: &Quota, hasher: &Hasher) -> Option<Self> {
        let quota = A::new(given)?;
        // Everything taken at the start of a window.
        let longest_reset = quota
            .assess(&A::State::default(), 0, given.limit())
            .reset_after;
        Some(Self {
            quota,
            id: hasher.quota_id(given),
            limit: given.limit(),
            longest_reset,
        })
    }
}
