//! Where a store has its time from, and the clock that a test moves.

pub use tollgate_core::{Clock, ManualClock};
