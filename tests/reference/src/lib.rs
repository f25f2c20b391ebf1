//! What a store does about leases and slots, in Rust: pure functions of a state, a time and a message.
//!
//! The scripts of tollgate-redis are compared with them, models drive the processes' side against them, and the simulator takes
//! them for its server. So all three are about the same store.

use tollgate_core::Tick;
use tollgate_prefilter::LeaseTerms;

mod bucket_grantor;
mod limit_state;
mod overdraft;
mod slot_grantor;
mod window_grantor;

pub use self::{
    bucket_grantor::{BucketGrantor, BucketState, TrackedLeases, put_back},
    limit_state::{BucketLimit, LimitState, WindowLimit},
    slot_grantor::{SlotGrantor, SlotRecord, SlotState},
    window_grantor::{WindowGrantor, WindowState},
};

/// Terms of tracked leases of a bucket: at most `reserve` units are on lease at once, each lease is at most the `share`-th part of what
/// is left, and of at least `least` units.
#[must_use]
pub const fn lease_terms(reserve: u64, tracked_life: Tick, share: u64, least: u64) -> LeaseTerms {
    LeaseTerms {
        reserve,
        tracked_life,
        window: None,
        share,
        least,
        schedule: None,
    }
}
