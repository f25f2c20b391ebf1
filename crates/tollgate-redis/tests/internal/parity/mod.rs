//! The script beside the core: random histories on a server, each answer compared with that of the memory store.
//!
//! By a clock of the caller's, which goes where the history wants it, and by that of the server as it is.

/// A test for each of these histories.
macro_rules! histories {
    ($($name:ident => $check:expr;)+) => {$(
        #[test]
        fn $name() {
            $check;
        }
    )+};
}

mod expected;
mod history;
mod holds;
mod lapses;
mod leases;
mod lives;
mod lowered;
mod pair;
mod quotas;
mod server;
mod slots;
mod time_to_live;

use crate::internal_tests::parity::{
    holds::{holds, holds_by_itself},
    quotas::Family,
};

histories! {
    buckets_are_counted_by_the_script_as_in_memory => holds("arrival", &[Family::Gcra]);
    a_fixed_window_is_counted_by_the_script_as_in_memory => holds("fixed_window", &[Family::FixedWindow]);
    windows_of_a_calendar_are_counted_by_the_script_as_in_memory => holds("calendar", &[Family::Calendar]);
    a_sliding_window_is_counted_by_the_script_as_in_memory => holds("sliding_window", &[Family::SlidingWindow]);
    a_log_is_counted_by_the_script_as_in_memory => holds("sliding_log", &[Family::SlidingLog]);
    sub_buckets_are_counted_by_the_script_as_in_memory => holds("sliding_buckets", &[Family::SlidingBuckets]);
    what_is_owed_is_counted_by_the_script_as_in_memory => holds("debt", &[Family::Debt]);
    rules_of_all_algorithms_are_decided_together_by_the_script_as_in_memory => holds("together", &Family::ALL);
    requests_wait_by_the_script_as_in_memory => holds("queue", &[Family::Queue]);
}

#[test]
fn requests_wait_for_several_rules_by_the_script_as_in_memory() {
    let all = [
        Family::Queue,
        Family::Queue,
        Family::Queue,
        Family::Gcra,
        Family::FixedWindow,
    ];
    holds("queues_together", &all);
}

#[test]
fn histories_hold_by_the_servers_clock() {
    for family in Family::ALL
        .into_iter()
        .chain([Family::Queue, Family::Calendar, Family::Debt])
    {
        holds_by_itself(&[family]);
    }
    holds_by_itself(&Family::ALL);
}
