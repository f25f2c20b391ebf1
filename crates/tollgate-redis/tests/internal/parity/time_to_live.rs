//! For how long states live by the server's own clock, which stands where a random history puts it: in the last microsecond of
//! a window, in the first of the next, and at the time that a denial told.
//!
//! Needs a server whose clock a preloaded library can stop: Redis, not Valkey from 9.1, which reads it from the processor.

use crate::internal_tests::parity::{holds::holds_by_server, quotas::Family, slots};

histories! {
    buckets_live_until_fresh => holds_by_server("arrival_by_server", &[Family::Gcra]);
    queues_live_until_fresh => holds_by_server("queue_by_server", &[Family::Queue]);
    a_fixed_window_lives_until_fresh => holds_by_server("fixed_window_by_server", &[Family::FixedWindow]);
    a_sliding_window_lives_until_fresh => holds_by_server("sliding_window_by_server", &[Family::SlidingWindow]);
    a_log_lives_until_fresh => holds_by_server("sliding_log_by_server", &[Family::SlidingLog]);
    sub_buckets_live_until_fresh => holds_by_server("sliding_buckets_by_server", &[Family::SlidingBuckets]);
    states_of_all_algorithms_live_until_fresh => holds_by_server("together_by_server", &Family::ALL);
    slots_live_until_the_last_owner_is_forgotten => slots::slots_live_until_the_last_owner_is_forgotten();
}
