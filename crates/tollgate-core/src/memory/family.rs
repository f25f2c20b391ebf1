//! Which table a rule counts in: its name, and the state machine of its algorithm.

use std::sync::Arc;

use crate::{algorithm_kind::AlgorithmKind, quota::Quota, rule::Rule};

/// Algorithms with one state machine share their tables; no other reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Family {
    Gcra,
    FixedWindow,
    SlidingWindow,
    SlidingBuckets,
    SlidingLog,
    Concurrent,
}

/// By what a table is found.
pub(super) type TableName = (Arc<str>, Family);

impl Family {
    /// The family of a rule's quotas; `None` where none has a state.
    pub(super) fn of(rule: &Rule) -> Option<Self> {
        let quotas = (0..rule.quotas()).map(|plan| rule.quota_of(plan));
        let mut families = quotas.map(Quota::algorithm).filter_map(Self::of_algorithm);
        families.next()
    }

    fn of_algorithm(algorithm: AlgorithmKind) -> Option<Self> {
        match algorithm {
            AlgorithmKind::Unlimited | AlgorithmKind::None => None,
            AlgorithmKind::TokenBucket | AlgorithmKind::Gcra | AlgorithmKind::LeakyBucket => {
                Some(Self::Gcra)
            }
            AlgorithmKind::FixedWindow => Some(Self::FixedWindow),
            AlgorithmKind::SlidingWindow => Some(Self::SlidingWindow),
            AlgorithmKind::SlidingBuckets => Some(Self::SlidingBuckets),
            AlgorithmKind::SlidingLog => Some(Self::SlidingLog),
            AlgorithmKind::Concurrent => Some(Self::Concurrent),
        }
    }
}
