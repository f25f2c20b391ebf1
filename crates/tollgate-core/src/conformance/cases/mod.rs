//! What a store has to do, one case each. [`conformance_suite!`](crate::conformance_suite) mounts them all.

pub mod counting;
pub mod names;
pub mod requests;
pub mod shadows;
pub mod tasks;
pub mod tickets;
pub mod time;

use crate::quota::{MAX_PERIOD, Quota};

/// `limit` units under every algorithm, in a window that does not end while a case runs.
fn every_algorithm(limit: u64) -> [Quota; 7] {
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
