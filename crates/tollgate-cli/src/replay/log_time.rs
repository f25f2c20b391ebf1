//! The time in a line of a log.

use jiff::{Timestamp, fmt::strtime};
use tollgate_core::Tick;

/// A time as logs write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogTime {
    pub(crate) at: Tick,
    /// Whether it has seconds only.
    pub(crate) is_whole_second: bool,
}

impl LogTime {
    /// Reads `27/Nov/2026:13:55:36 +0100`, `2026-11-27T13:55:36.5+01:00`, or seconds, milli-, micro- or nanoseconds since 1970.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let at = if text.get(2..3) == Some("/") {
            let parsed = strtime::parse("%d/%b/%Y:%H:%M:%S %z", text);
            parsed.ok()?.to_timestamp().ok()?.as_microsecond()
        } else if text.get(4..5) == Some("-") {
            text.parse::<Timestamp>().ok()?.as_microsecond()
        } else {
            let number = text.parse::<f64>().ok()?;
            // Not NaN, and not before 1970.
            (0.0..9e18).contains(&number).then_some(())?;
            // Each form covers what the others would write for years that no log is of.
            let micros = match number {
                ..1e11 => 1e6,
                ..1e14 => 1e3,
                ..1e17 => 1.0,
                _ => 1e-3,
            };
            (number * micros).round() as i64
        };
        let is_whole_second = !text.contains(['.', ',']) && (text.len() < 13 || text.contains(':'));
        let at = Tick::try_from(at).ok()?;
        Some(Self {
            at,
            is_whole_second,
        })
    }
}

/// Microseconds of a number of seconds or of parts of one.
pub(crate) fn micros(text: &[u8], unit: f64) -> Option<Tick> {
    let number = std::str::from_utf8(text).ok()?.parse::<f64>().ok()?;
    let micros = (number * unit).round();
    (0.0..1e15).contains(&micros).then_some(micros as Tick)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_spellings_of_an_instant_are_one_and_jiff_agrees() {
        for (text, seconds, micros, is_whole_second) in [
            ("27/Nov/2026:13:55:36 +0100", 1_795_784_136_u64, 0, true),
            ("2026-11-27T12:55:36Z", 1_795_784_136, 0, true),
            (
                "2026-11-27 18:25:36,25+05:30",
                1_795_784_136,
                250_000,
                false,
            ),
            (
                "2026-11-27T12:55:36.1234567Z",
                1_795_784_136,
                123_456,
                false,
            ),
            ("1795784136.5", 1_795_784_136, 500_000, false),
            ("1795784136", 1_795_784_136, 0, true),
            ("1795784136123", 1_795_784_136, 123_000, false),
            ("1795784136123456", 1_795_784_136, 123_456, false),
            ("1795784136123456789", 1_795_784_136, 123_457, false),
            // The hour that a clock shows twice when summer time ends: the offset tells which.
            ("25/Oct/2026:02:30:00 +0200", 1_792_888_200, 0, true),
            ("25/Oct/2026:02:30:00 +0100", 1_792_891_800, 0, true),
            ("29/Feb/2024:00:00:00 +0000", 1_709_164_800, 0, true),
        ] {
            let time = LogTime::parse(text.as_bytes()).expect(text);
            let at = seconds * 1_000_000 + micros;
            assert_eq!(
                time,
                LogTime {
                    at,
                    is_whole_second
                },
                "{text}"
            );
            if text.contains('T') {
                let jiff: jiff::Timestamp = text.parse().expect(text);
                assert_eq!(jiff.as_microsecond() as u64, time.at);
            }
        }
        for text in [
            "",
            "-",
            "nan",
            "1e300",
            "29/Feb/2026:00:00:00 +0000",
            "27/Nov/2026:13:55:36",
            "27/Nov/2026:24:00:00 +0000",
            "2026-11-27T12:55:36",
            "2026-13-27T12:55:36Z",
            "31/Apr/2026:00:00:00 +0000",
            "12a",
            "99999999999999999999",
            "01/Jan/1969:00:00:00 +0000",
        ] {
            assert!(LogTime::parse(text.as_bytes()).is_none(), "{text}");
        }
    }
}
