//! Budgets as a server reports them, and what the application reads of its limits.

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

/// What a response says about the server's limits in fields that the layer does not read by itself: see
/// [`read_limits`](crate::ClientRateLimitLayer::read_limits).
#[must_use]
#[derive(Clone, Debug, Default)]
pub struct ServerLimits {
    pub(crate) retry_after: Option<Duration>,
    pub(crate) budgets: Vec<AdvisedBudget>,
}

impl ServerLimits {
    /// It says nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The request was rejected, whatever its status, and may be sent again after this time. With the time of another field the
    /// longer one counts.
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = self.retry_after.max(Some(wait));
        self
    }

    /// This many requests are left of the budget of this name, until it is reset after `reset`. A budget is known by its name from
    /// one response to the next.
    pub fn budget(mut self, name: &str, left: u64, reset: Duration) -> Self {
        let name = AdvisedBudget::hash_of(("application", name));
        self.budgets.push(AdvisedBudget { name, left, reset });
        self
    }
}
