//! What a server says of one of its budgets.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use smallvec::SmallVec;

/// How many budgets one response can tell of.
pub(crate) const MOST: usize = 8;

/// What a server says of one of its budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// Stands for the name of the budget.
    pub(crate) name: u64,
    /// How many requests are left.
    pub(crate) left: u64,
    /// For how long no more than those are.
    pub(crate) reset: Duration,
}

impl Told {
    /// The number that stands for a name. A server that makes two names meet confuses nobody but its own clients.
    pub(crate) fn name_of(name: impl Hash) -> u64 {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        hasher.finish()
    }
}

/// The budgets of one response, the tightest first.
pub(crate) type Budgets = SmallVec<[Told; 2]>;
