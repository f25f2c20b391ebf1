//! Quotas to count under.

use std::time::Duration;

use tollgate_core::{Quota, Retry};

/// How many algorithms there are.
pub const ALGORITHMS: usize = 7;

/// `limit` units in `window` under every algorithm.
pub fn every_algorithm(limit: u64, window: Duration) -> [Quota; ALGORITHMS] {
    [
        Quota::fixed_window(limit, window),
        Quota::sliding_window(limit, window),
        Quota::sliding_buckets(limit, window),
        Quota::sliding_log(limit, window),
        Quota::gcra(limit, window),
        Quota::token_bucket(limit).refill(limit, window),
        Quota::leaky_bucket(limit).leak(limit, window),
    ]
}

/// The longest, after a clock went back, until the whole of a used-up `quota` is there again: a denial moves what lies in
/// the future no further than to the next window or sub-bucket.
#[must_use]
pub fn horizon(quota: &Quota) -> Duration {
    use tollgate_core::AlgorithmKind as A;
    match quota.algorithm() {
        A::FixedWindow => 2 * quota.window(),
        // A window weighs until the one after it has ended.
        A::SlidingWindow => 3 * quota.window(),
        A::SlidingBuckets => quota.window() + 2 * quota.window() / quota.bucket_count().max(1),
        _ => quota.window(),
    }
}

/// The `retry` of a denial.
///
/// # Panics
///
/// It is no time.
#[must_use]
pub fn wait(retry: Retry) -> Duration {
    match retry {
        Retry::After(wait) => wait,
        other => panic!("{other:?} is not a time to wait"),
    }
}
