//! The calendars of a [`Quota`](crate::Quota).

pub use tollgate_core::calendar::{Calendar, CalendarUnit, Weekday};
