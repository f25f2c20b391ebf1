//! Until when entries are in force.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tollgate_core::Tick;

/// The time at this tick.
pub(crate) fn time(at: Tick) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(at)
}

/// Until when an entry is in force, and why.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Term {
    /// `Tick::MAX`: for ever.
    pub(crate) until: Tick,
    pub(crate) reason: Option<Box<str>>,
}

impl Term {
    pub(crate) const EVER: Self = Self {
        until: Tick::MAX,
        reason: None,
    };

    /// Until when; `None`: for ever.
    pub(crate) fn end(&self) -> Option<SystemTime> {
        (self.until < Tick::MAX).then(|| time(self.until))
    }

    /// The same. For ever is no time of the calendar.
    pub(crate) fn timestamp(&self) -> Option<Timestamp> {
        let micros = i64::try_from(self.until).ok()?;
        Timestamp::from_microsecond(micros).ok()
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(until) = self.timestamp() {
            write!(f, " until {until}")?;
        }
        match &self.reason {
            Some(reason) => write!(f, " ({reason})"),
            None => Ok(()),
        }
    }
}
