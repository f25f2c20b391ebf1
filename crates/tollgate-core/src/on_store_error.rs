//! A rule's answer to a store failure.

use crate::quota::Quota;

/// What a rule answers when the store fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnStoreError {
    /// Counts in this process against its share of the quota: 1/N, at least one unit.
    ///
    /// N is the [configured](crate::Limiter::with_instances) number of instances, or the number that the store
    /// [last reported](crate::store::RuleStore::instances) if that is larger. When N grows, shares shrink at once. When it
    /// falls, they grow after 30 s. A change keeps what a share has counted. A share that [`Quota::validate`] would refuse
    /// keeps its size.
    ///
    /// A share starts with 1/N (rounded up) of the usage that the store last reported to this process for the key, less
    /// what has refilled since: evenly in a bucket, at the end of a window. When the store is back, it continues from its own
    /// state. Neither side is credited with usage of the other;
    /// [`Limiter::admitted_in_fallback`](crate::Limiter::admitted_in_fallback) counts the units admitted in between.
    ///
    /// # Accuracy
    ///
    /// While the store is down for a time `t`, and all N instances know of each other, they together admit for a key at most
    ///
    /// ```text
    /// rate · t + max(burst, N)          for a bucket
    /// max(limit, N) in each window      for a fixed window, sub-buckets, or a log
    /// ```
    ///
    /// in one outage or in several in a row. At most two bursts come on top: what the store admitted just before the outage
    /// and this instance has not seen (each instance remembers about 65 000 states), and what the store admits just after it,
    /// because its state is stale. A sliding window of two counters keeps the bound of its
    /// [page](crate::algorithm::sliding_window). If N periods would exceed [`MAX_PERIOD`](crate::MAX_PERIOD), the rate is
    /// divided instead and rounded down, to at least one unit per period and instance.
    ///
    /// The units that a share of a window starts with count as taken when the store first failed for the key. In a log,
    /// sub-buckets or a sliding window they expire later than in the store, by less than a window.
    #[default]
    LocalShare,
    /// Counts in this process against this quota.
    Cap(Quota),
    /// Lets the request pass.
    Allow,
    /// Denies the request: 503, or UNAVAILABLE for gRPC.
    Deny,
    /// Lets the request pass and marks it as degraded, for the handler to see.
    Degraded,
}

impl OnStoreError {
    /// The word for it in metrics: `local_share`, `cap`, `allow`, `deny` or `degraded`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::LocalShare => "local_share",
            Self::Cap(_) => "cap",
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Degraded => "degraded",
        }
    }
}
