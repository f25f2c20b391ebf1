//! What a store does about leases and slots, in Rust: pure functions of a state, a time and a message.
//!
//! The scripts of tollgate-redis are compared with them, models drive the processes' side against them, and the simulator takes
//! them for its server. So all three are about the same store.

mod bucket_grantor;
mod lease_size;
mod limit_state;
mod overdraft;
mod slot_grantor;
mod window_grantor;

pub use self::{
    bucket_grantor::{BucketGrantor, BucketState, TrackedLeases, put_back},
    lease_size::{LeaseSize, lease_terms},
    limit_state::{BucketLimit, LimitState, WindowLimit},
    slot_grantor::{SlotGrantor, SlotRecord, SlotState},
    window_grantor::{WindowGrantor, WindowState},
};
