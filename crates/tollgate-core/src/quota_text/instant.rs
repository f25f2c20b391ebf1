//! Points in time: `2026-12-24T00:00Z`.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{
    quota_text::{error::Wrong, word::Word},
    time::Tick,
};

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
pub(super) fn instant(word: &Word<'_>) -> Result<SystemTime, Wrong> {
    micros(word.text)
        .map(|micros| UNIX_EPOCH + Duration::from_micros(micros))
        .ok_or_else(|| {
            let quoted = word.quoted();
            let message = format!("{quoted} is not a time in UTC; write it as 2026-12-24T00:00Z");
            Wrong::new(word.span(), message)
        })
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
