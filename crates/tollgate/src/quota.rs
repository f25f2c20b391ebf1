//! The parts and the bounds of a [`Quota`](crate::Quota).

pub use tollgate_core::{AlgorithmKind, LeakyBucketOf, MAX_PERIOD, MAX_UNITS, TokenBucketOf};
