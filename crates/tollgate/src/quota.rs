//! The calendar of a [`Quota`](crate::Quota).

pub use tollgate_core::calendar::{CalendarUnit, Weekday};
