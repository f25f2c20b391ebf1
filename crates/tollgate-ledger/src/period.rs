//! A year, a month or a day of a report.

use std::str::FromStr;

use jiff::{
    ToSpan as _,
    civil::{Date, DateTime},
    tz::TimeZone,
};
use tollgate_core::Tick;

use crate::error::LedgerError;

/// After its end, a window takes usage for so long, in µs. Then it is closed: what comes later is a correction.
pub(crate) const CLOSES_AFTER: Tick = 600_000_000;

/// A year, a month or a day, in UTC: `2026`, `2026-07`, `2026-07-31`. A window belongs to the period that its middle is in: July of any
/// time zone to July, and a month from the 15th to the one that has most of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    pub(crate) from: Tick,
    pub(crate) to: Tick,
}

impl Period {
    /// All windows.
    pub const ALL: Self = Self {
        from: 0,
        to: 1 << 53,
    };
}

impl FromStr for Period {
    type Err = LedgerError;

    fn from_str(text: &str) -> Result<Self, LedgerError> {
        let (rest, span) = match text.len() {
            4 => ("-01-01", 1.year()),
            7 => ("-01", 1.month()),
            _ => ("", 1.day()),
        };
        let whole = format!("{text}{rest}");
        let ticks = |date: Date| {
            let zoned = DateTime::from(date).to_zoned(TimeZone::UTC).ok()?;
            u64::try_from(zoned.timestamp().as_microsecond()).ok()
        };
        let first = whole
            .parse::<Date>()
            .ok()
            .filter(|first| first.to_string() == whole);
        let period = first.and_then(|first| {
            let (from, to) = (ticks(first)?, ticks(first.checked_add(span).ok()?)?);
            Some(Self { from, to })
        });
        period.ok_or_else(|| {
            LedgerError::setup(format!(
                "{text:?} is no period; take a year, a month or a day since 1970, such as 2026-07"
            ))
        })
    }
}

/// A time in µs since the epoch, in UTC.
pub(crate) fn time_text(at: Tick) -> String {
    let at = i64::try_from(at)
        .ok()
        .and_then(|at| jiff::Timestamp::from_microsecond(at).ok());
    at.map_or_else(|| "?".to_owned(), |at| at.to_string())
}

/// Its day in UTC: `2026-07-31`.
pub(crate) fn day_text(at: Tick) -> String {
    let text = time_text(at);
    text.get(..10).unwrap_or(&text).to_owned()
}
