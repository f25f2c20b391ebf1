//! The parts and the bounds of a [`Quota`](crate::Quota).

#[cfg(feature = "calendar")]
pub use tollgate_core::calendar::{Calendar, CalendarUnit, Weekday};
pub use tollgate_core::{AlgorithmKind, MAX_PERIOD, MAX_UNITS};
