//! What the application reads of a server's limits.

use std::time::Duration;

use crate::advice::advised_budget::AdvisedBudget;

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
