//! The algorithms, each a pure function of (state, now, quota, cost). (docs later)

mod arrival;
pub mod fixed_window;
pub mod gcra;
pub mod leaky_bucket;
pub mod sliding_buckets;
pub mod sliding_log;
pub mod sliding_window;
pub mod token_bucket;

pub use self::{
    arrival::{Arrival, ArrivalState},
    assessment::{Algorithm, Assessment, LearnedBound, Retry, Taken},
    fixed_window::{FixedWindow, FixedWindowState},
    sliding_buckets::{SlidingBuckets, SlidingBucketsState},
    sliding_log::{SlidingLog, SlidingLogState},
    sliding_window::{SlidingWindow, SlidingWindowState},
};

mod assessment;
