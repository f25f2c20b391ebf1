//! Quotas of a calendar as text: `10000000/month Europe/Zurich from 15`.

use crate::{
    calendar::{Calendar, CalendarUnit, Weekday},
    quota::Quota,
    quota_text::word::{ParseQuotaError, Word, units},
};

/// Whether a quota that begins with a number is one of a calendar: by its unit, or by what follows.
pub(super) fn is_calendar(rate: &Word<'_>, settings: &[Word<'_>]) -> bool {
    let Some((number, unit)) = rate.halves() else {
        return false;
    };
    // No period of a fixed length is called so.
    let by_unit = matches!(
        unit_of(unit.text),
        Some(CalendarUnit::Month | CalendarUnit::Year)
    );
    let mut settings = settings.iter();
    number.text.starts_with(|c: char| c.is_ascii_digit())
        && (by_unit || settings.any(|word| word.text == "from" || is_zone(word)))
}

/// `n/unit [zone] [from day]`. Without zone and day they are those of `own`, if that has the same unit.
pub(super) fn calendar(
    words: &[Word<'_>],
    text: &str,
    own: Option<Calendar>,
) -> Result<Quota, ParseQuotaError> {
    let end = text.trim_end().len();
    let Some((rate, mut settings)) = words.split_first() else {
        let message =
            "the units and the unit of the calendar are missing; write \"calendar 100/month\"";
        return Err(ParseQuotaError::missing(text, message));
    };
    let Some((number, unit)) = rate.halves() else {
        let message = "has no unit of a calendar; write it as \"calendar 100/month\"";
        return Err(rate.quoted_wrong(message));
    };
    let limit = units(&number)?;
    let Some(calendar) = unit_of(unit.text) else {
        let message = "is not a unit of a calendar; write day, week, month or year";
        return Err(ParseQuotaError::unknown(
            &unit,
            message,
            CalendarUnit::ALL.map(|(_, names, _)| names[0]),
        ));
    };
    let mut quota = match own.filter(|own| settings.is_empty() && own.unit() == calendar) {
        Some(own) => Quota::in_calendar(limit, own),
        None => Quota::calendar(limit, calendar),
    };
    let (mut zone, mut from) = (None, None);
    while let Some((word, rest)) = settings.split_first() {
        settings = rest;
        let is_second = match word.text {
            "from" => {
                let Some((day, rest)) = settings.split_first() else {
                    let message = "the day after \"from\" is missing; write it as 15, or as sunday";
                    return Err(ParseQuotaError::missing(text, message));
                };
                settings = rest;
                quota = from_day(quota, day)?;
                from.replace(word.start).is_some()
            }
            "burst" | "buckets" => {
                let message =
                    "is not a setting of a calendar; it takes a time zone, and from which day";
                return Err(word.quoted_wrong(message));
            }
            name => {
                quota = quota.zone(name);
                zone.replace(*word).is_some()
            }
        };
        if is_second {
            return Err(word.quoted_wrong("is one too many; remove it"));
        }
    }
    quota.validate().map_err(|error| {
        let span = match zone {
            _ if limit == 0 => rate.span(),
            Some(zone) if error.to_string().contains("time zone of") => zone.span(),
            _ => from.unwrap_or(rate.start)..end,
        };
        ParseQuotaError::new(span, error.to_string())
    })?;
    Ok(quota)
}

fn from_day(quota: Quota, word: &Word<'_>) -> Result<Quota, ParseQuotaError> {
    let lower = word.text.to_ascii_lowercase();
    if let Some((day, _)) = Weekday::ALL.iter().find(|(_, name)| *name == lower) {
        return Ok(quota.week_from(*day));
    }
    match word.text.parse() {
        Ok(day) => Ok(quota.from_day(day)),
        Err(_) => {
            let message = "is not a day; write 1 to 31, or a day of the week as sunday";
            let names = Weekday::ALL.iter().map(|(_, name)| *name);
            Err(ParseQuotaError::unknown(word, message, names))
        }
    }
}

/// Of all settings only a zone is written with a slash.
fn is_zone(word: &Word<'_>) -> bool {
    word.text.contains('/') && word.text.starts_with(char::is_alphabetic)
        || word.text.eq_ignore_ascii_case("UTC")
}

fn unit_of(word: &str) -> Option<CalendarUnit> {
    let mut all = CalendarUnit::ALL.into_iter();
    let unit = all.find(|(_, names, _)| names.contains(&word))?;
    Some(unit.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_is_read_and_printed_again() {
        use CalendarUnit::{Day, Month, Week, Year};
        let of = Quota::calendar;
        for (text, quota, printed) in [
            ("100/month", of(100, Month), "calendar 100/month"),
            ("1_000/year", of(1_000, Year), "calendar 1000/year"),
            ("5 / mo", of(5, Month), "calendar 5/month"),
            ("calendar 7/d", of(7, Day), "calendar 7/day"),
            ("7/day UTC", of(7, Day), "calendar 7/day"),
            (
                "7/d asia/kathmandu",
                of(7, Day).zone("Asia/Kathmandu"),
                "calendar 7/day Asia/Kathmandu",
            ),
            (
                "7/w from Sunday",
                of(7, Week).week_from(Weekday::Sunday),
                "calendar 7/week from sunday",
            ),
            (
                "7/month from 31 Europe/Zurich",
                of(7, Month).zone("Europe/Zurich").from_day(31),
                "calendar 7/month Europe/Zurich from 31",
            ),
        ] {
            assert_eq!(text.parse(), Ok(quota), "{text}");
            assert_eq!(quota.to_string(), printed);
            assert_eq!(printed.parse(), Ok(quota));
        }
        // As ever.
        assert_eq!("7/day".parse(), Ok(Quota::gcra(7, crate::time::DAY)));
    }

    #[test]
    fn an_error_names_the_part_and_what_would_be_right() {
        for (text, part, right) in [
            ("calendar", "", "calendar 100/month"),
            ("calendar 100", "100", "calendar 100/month"),
            ("calendar 100/min", "min", "day, week, month or year"),
            ("calendar 100/mnoth", "mnoth", "month"),
            ("0/month", "0/month", "at least 1"),
            ("5/month Zurich", "Zurich", "Europe/Zurich"),
            ("5/month Europe/Zürich", "Europe/Zürich", "Europe/Zurich"),
            ("5/month Mars/Olympus", "Mars/Olympus", "write it as"),
            ("5/month from 32", "from 32", "1 to 31"),
            ("5/month from sundy", "sundy", "sunday"),
            ("5/month from", "", "write it as 15"),
            ("5/month from sunday", "from sunday", "belongs to a week"),
            ("5/week from 3 UTC", "from 3 UTC", "belongs to a month"),
            ("5/month UTC UTC", "UTC", "remove it"),
            ("5/month burst 7", "burst", "time zone"),
            ("fixed_window 5/month", "month", "30d"),
            ("5/2months", "2months", "calendar"),
        ] {
            let error = text.parse::<Quota>().expect_err(text);
            assert_eq!(&text[error.span()], part, "{text}: {error}");
            assert!(error.to_string().contains(right), "{text}: {error}");
        }
    }
}
