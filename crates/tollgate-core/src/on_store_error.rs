//! A rule's answer to a store failure.

use crate::quota::Quota;

/// What a rule answers when the store fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnStoreError {
    /// Counts in this process against its share of the quota: 1/N, at least one unit.
    ///
    /// N is the number of instances that was [given](crate::Limiter::with_instances), or the one that the store
    /// [knew](crate::store::RuleStore::instances) last if that is larger. When there are more, the shares shrink at once; they grow
    /// after fewer have been known for 30 s. What a share has counted stays counted. One that cannot be counted for so many
    /// (see [`Quota::validate`]) stays what it was.
    ///
    /// A share begins with 1/N of what was used of the key when the store last answered this process, rounded up, less what
    /// time has given back since: of a bucket evenly, of a window at its end. When the store is back it counts on from its own
    /// state. Nothing is credited to either side, and
    /// [`Limiter::admitted_in_fallback`](crate::Limiter::admitted_in_fallback) says how much passed.
    ///
    /// # Accuracy
    ///
    /// While the store fails for a time `t`, and all N instances know of each other, a key gets from all of them at most
    ///
    /// ```text
    /// rate · t + max(burst, N)          of a bucket
    /// max(limit, N) in each window      of a fixed window, sub-buckets, or a log
    /// ```
    ///
    /// in one outage or in several that follow each other. Around an outage come at most two bursts more: what the store
    /// let pass just before it, as far as an instance had not seen that (each remembers some 65 000 states), and what it
    /// lets pass just after, because its state is stale. A sliding window of two counters keeps to the estimate that its
    /// [page](crate::algorithm::sliding_window) states. Rates that can only be divided by rounding (a period of N times its
    /// length would be above [`MAX_PERIOD`](crate::MAX_PERIOD)) are rounded down, and are at least one unit a period for each
    /// instance.
    ///
    /// Units of a window that a share begins with weigh as if they had been taken when the store first failed for the key:
    /// those of a log, sub-buckets or a sliding window are let go later than the store would have, by less than a window.
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
