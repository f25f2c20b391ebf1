//! The quotas that a case is tried with.

use tollgate_core::{MAX_PERIOD, Quota};

/// `limit` units under every algorithm, in a window that does not end while a case runs.
pub(crate) fn every_algorithm(limit: u64) -> [Quota; 7] {
    [
        Quota::fixed_window(limit, MAX_PERIOD),
        Quota::sliding_window(limit, MAX_PERIOD),
        Quota::sliding_buckets(limit, MAX_PERIOD),
        Quota::sliding_log(limit, MAX_PERIOD),
        Quota::gcra(limit, MAX_PERIOD),
        Quota::token_bucket(limit).refill(limit, MAX_PERIOD),
        Quota::leaky_bucket(limit).leak(limit, MAX_PERIOD),
    ]
}
