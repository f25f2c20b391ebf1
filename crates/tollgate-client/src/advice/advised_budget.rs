//! One budget as a server reports it.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use smallvec::SmallVec;

/// The number of budgets read from one response.
pub(crate) const MOST: usize = 8;

/// One budget as a server reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AdvisedBudget {
    /// The hash of the budget's name.
    pub(crate) name: u64,
    /// How many requests are left.
    pub(crate) left: u64,
    /// The time until the budget is reset.
    pub(crate) reset: Duration,
}

impl AdvisedBudget {
    /// The hash of a name. A server that constructs a collision affects only its own clients.
    pub(crate) fn hash_of(name: impl Hash) -> u64 {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        hasher.finish()
    }
}

/// The budgets of one response, the tightest first.
pub(crate) type Budgets = SmallVec<[AdvisedBudget; 2]>;
