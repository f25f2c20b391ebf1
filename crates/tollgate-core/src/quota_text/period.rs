//! Periods as text: `min`, `30s`, `1h30min`.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{
    quota::MAX_PERIOD,
    quota_text::word::{ParseQuotaError, Word, units},
    time::Tick,
};

/// The units of time with the names they have; the first is the one that is printed. From long to short.
pub(super) const UNITS: [(&[&str], u64); 7] = [
    (&["w", "week", "weeks"], 604_800_000_000),
    (&["d", "day", "days"], 86_400_000_000),
    (&["h", "hour", "hours", "hr"], 3_600_000_000),
    (&["min", "minute", "minutes", "m", "mins"], 60_000_000),
    (&["s", "second", "seconds", "sec", "secs"], 1_000_000),
    (&["ms", "millisecond", "milliseconds"], 1_000),
    (&["us", "µs", "μs", "microsecond", "microseconds"], 1),
];

/// A unit of time, or several: `min`, `10s`, `1h30min`.
pub(super) fn period(word: &Word<'_>) -> Result<Duration, ParseQuotaError> {
    if word.text.is_empty() {
        let message = "the period is missing; write it as s, min, h, d, or several as 10s";
        return Err(word.wrong(message));
    }
    let mut rest = *word;
    let mut micros: u64 = 0;
    while !rest.text.is_empty() {
        let digits = rest.text.find(|c: char| !c.is_ascii_digit() && c != '_');
        let (count, unit) = rest.split_at(digits.unwrap_or(rest.text.len()));
        let letters = unit.text.find(|c: char| c.is_ascii_digit());
        let (unit, next) = unit.split_at(letters.unwrap_or(unit.text.len()));
        let is_only_a_unit = count.text.is_empty() && rest.start == word.start;
        let count = if is_only_a_unit && next.text.is_empty() {
            1
        } else {
            units(&count).map_err(|wrong| match count.text {
                "" => not_a_period(word, &rest),
                _ => wrong,
            })?
        };
        let known = UNITS.iter().find(|(names, _)| names.contains(&unit.text));
        let (_, length) = known.ok_or_else(|| not_a_period(word, &unit))?;
        let sum = count
            .checked_mul(*length)
            .and_then(|n| n.checked_add(micros));
        micros = match sum {
            Some(sum) if Duration::from_micros(sum) <= MAX_PERIOD => sum,
            _ => {
                let message = format!("a period of {} is above ten years", word.quoted());
                return Err(word.wrong(message));
            }
        };
        rest = next;
    }
    Ok(Duration::from_micros(micros))
}

fn not_a_period(period: &Word<'_>, unit: &Word<'_>) -> ParseQuotaError {
    if ["mo", "month", "months", "y", "year", "years"].contains(&unit.text) {
        return period.quoted_wrong(
            "is not a period, because its length differs; write a number of days, as 30d, or one of a calendar, as \"calendar 5/month\"",
        );
    }
    if unit.text.is_empty() {
        let meant = format!("has no unit of time; did you mean \"{}s\"?", period.text);
        return period.quoted_wrong(&meant);
    }
    let names = UNITS.iter().flat_map(|(names, _)| names.iter().copied());
    ParseQuotaError::unknown(
        unit,
        "is not a unit of time; write s, min, h, d, or several as 10s",
        names,
    )
}

/// A period in the largest unit that divides it; weeks are said in days.
pub(super) struct PeriodText(pub(super) Duration);

impl fmt::Display for PeriodText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_micros();
        let mut units = UNITS.iter().skip(1);
        let unit = units.find(|(_, length)| micros.is_multiple_of(u128::from(*length)));
        // A microsecond divides all.
        let Some((names, length)) = unit else {
            return Ok(());
        };
        match micros / u128::from(*length) {
            1 => f.write_str(names[0]),
            count => write!(f, "{count}{}", names[0]),
        }
    }
}

// Points in time: `2026-12-24T00:00Z`.

const DAY: u64 = 24 * 60 * 60;

/// A point in time as RFC 3339 writes it, in UTC.
pub(super) struct InstantText(pub(super) Tick);

impl fmt::Display for InstantText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.0 / 1_000_000, self.0 % 1_000_000);
        let (year, month, day) = date(seconds / DAY);
        let (hour, minute) = (seconds / 3_600 % 24, seconds / 60 % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}",
            seconds % 60
        )?;
        if micros > 0 {
            write!(f, ".{micros:06}")?;
        }
        f.write_str("Z")
    }
}

/// The year, month and day so many days after 1970-01-01. The calendar repeats each 400 years, which begin in March.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

/// The days from 1970-01-01 to this date.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = year - u64::from(month <= 2);
    let month = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * month + 2) / 5 + day - 1;
    year / 400 * 146_097 + year % 400 * 365 + year % 400 / 4 - year % 400 / 100 + of_year - 719_468
}

/// A point in time of a text.
pub(super) fn instant(word: &Word<'_>) -> Result<SystemTime, ParseQuotaError> {
    micros(word.text)
        .map(|micros| UNIX_EPOCH + Duration::from_micros(micros))
        .ok_or_else(|| word.quoted_wrong("is not a time in UTC; write it as 2026-12-24T00:00Z"))
}

fn micros(text: &str) -> Option<Tick> {
    let (date_text, time) = text.strip_suffix('Z')?.split_once('T')?;
    let number = |text: &str, digits: usize| {
        let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>().ok().filter(|_| is_number)
    };
    let mut parts = date_text.split('-');
    let (year, month, day) = (
        number(parts.next()?, 4).filter(|year| *year >= 1970)?,
        number(parts.next()?, 2)?,
        number(parts.next()?, 2).filter(|day| *day >= 1)?,
    );
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut clock = time.split(':');
    let (hour, minute) = (number(clock.next()?, 2)?, number(clock.next()?, 2)?);
    let second = clock.next().map_or(Some(0), |second| number(second, 2))?;
    let micros = number(&format!("{fraction:0<6}"), 6)?;
    let days = days(year, month, day);
    let is_date = parts.next().is_none() && date(days) == (year, month, day);
    let is_time = clock.next().is_none() && hour < 24 && minute < 60 && second < 60;
    (is_date && is_time)
        .then(|| (days * DAY + hour * 3_600 + minute * 60 + second) * 1_000_000 + micros)
}
