//! Periods as text: `min`, `30s`, `1h30min`.

use std::{fmt, time::Duration};

use crate::{
    quota::MAX_PERIOD,
    quota_text::{error::Wrong, units::units, word::Word},
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
pub(super) fn period(word: &Word<'_>) -> Result<Duration, Wrong> {
    if word.text.is_empty() {
        let message = "the period is missing; write it as s, min, h, d, or several as 10s";
        return Err(Wrong::new(word.span(), message));
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
        let length = unit_of_time(&unit).ok_or_else(|| not_a_period(word, &unit))?;
        let sum = count
            .checked_mul(length)
            .and_then(|n| n.checked_add(micros));
        micros = match sum {
            Some(sum) if Duration::from_micros(sum) <= MAX_PERIOD => sum,
            _ => {
                let message = format!("a period of {} is above ten years", word.quoted());
                return Err(Wrong::new(word.span(), message));
            }
        };
        rest = next;
    }
    Ok(Duration::from_micros(micros))
}

fn unit_of_time(word: &Word<'_>) -> Option<u64> {
    let unit = UNITS.iter().find(|(names, _)| names.contains(&word.text));
    unit.map(|(_, micros)| *micros)
}

fn not_a_period(period: &Word<'_>, unit: &Word<'_>) -> Wrong {
    if ["mo", "month", "months", "y", "year", "years"].contains(&unit.text) {
        let message = format!(
            "{} is not a period, because its length differs; write a number of days, as 30d, or one of a calendar, as \"calendar 5/month\"",
            period.quoted()
        );
        return Wrong::new(period.span(), message);
    }
    if unit.text.is_empty() {
        let message = format!(
            "{} has no unit of time; did you mean \"{}s\"?",
            period.quoted(),
            period.text
        );
        return Wrong::new(period.span(), message);
    }
    let names = UNITS.iter().flat_map(|(names, _)| names.iter().copied());
    Wrong::unknown(
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
