//! Times and durations in words.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// `1.5 s`, `3 min 20 s`: two units at most.
pub(crate) fn duration(duration: Duration) -> String {
    let micros = duration.as_micros();
    let seconds = duration.as_secs();
    match seconds {
        _ if micros < 1_000 => format!("{micros} µs"),
        0 => format!("{} ms", decimal(micros, 1_000)),
        1..60 => format!("{} s", decimal(micros, 1_000_000)),
        60..3_600 => two(seconds, (60, "min"), (1, "s")),
        3_600..86_400 => two(seconds, (3_600, "h"), (60, "min")),
        _ => two(seconds, (86_400, "d"), (3_600, "h")),
    }
}

/// With one digit behind the point, if it is not 0.
fn decimal(micros: u128, unit: u128) -> String {
    let tenths = micros * 10 / unit;
    match tenths % 10 {
        0 => format!("{}", tenths / 10),
        digit => format!("{}.{digit}", tenths / 10),
    }
}

fn two(seconds: u64, (large, name): (u64, &str), (small, small_name): (u64, &str)) -> String {
    match seconds % large / small {
        0 => format!("{} {name}", seconds / large),
        rest => format!("{} {name} {rest} {small_name}", seconds / large),
    }
}

/// How long from a time in microseconds since the Unix epoch on, and the time of day then, in UTC: with the date from a day on.
pub(crate) fn from(at: u64, after: Duration) -> String {
    let then = Timestamp::try_from(then(at, after)).unwrap_or(Timestamp::UNIX_EPOCH);
    let of_day = match after.as_secs() {
        ..86_400 => "%H:%M:%SZ",
        _ => "%Y-%m-%dT%H:%MZ",
    };
    format!("{}, {}", duration(after), then.strftime(of_day))
}

/// The time that long after one in microseconds since the Unix epoch.
pub(crate) fn then(at: u64, after: Duration) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(at).saturating_add(after)
}

/// In UTC, to the second.
pub(crate) fn time(time: SystemTime) -> String {
    let time = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
    let rounded = Timestamp::from_second(time.as_second()).unwrap_or(time);
    rounded.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_day_has_its_date_from_a_day_on() {
        let (at, day) = (1_000_000_000_000_000, Duration::from_secs(86_400));
        let just_below = day - Duration::from_secs(1);
        assert_eq!(from(at, just_below), "23 h 59 min, 01:46:39Z");
        assert_eq!(from(at, day), "1 d, 2001-09-10T01:46Z");
    }

    #[test]
    fn a_duration_has_at_most_two_units() {
        for (micros, text) in [
            (0, "0 µs"),
            (999, "999 µs"),
            (1_000, "1 ms"),
            (1_550, "1.5 ms"),
            (999_999, "999.9 ms"),
            (1_500_000, "1.5 s"),
            (60_000_000, "1 min"),
            (200_000_000, "3 min 20 s"),
            (3_599_000_000, "59 min 59 s"),
            (3_660_000_000, "1 h 1 min"),
            (7_198_000_000, "1 h 59 min"),
            (86_399_000_000, "23 h 59 min"),
            (90_000_000_000, "1 d 1 h"),
            (172_798_000_000, "1 d 23 h"),
        ] {
            assert_eq!(duration(Duration::from_micros(micros)), text);
        }
    }
}
