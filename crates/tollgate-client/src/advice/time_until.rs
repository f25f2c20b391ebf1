//! Times in header fields, as durations from now; and `Retry-After` (RFC 9110 §10.2.3) with what servers really send: fractions, units,
//! lists, and fields of their own.

use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderMap, header};
use jiff::{Span, SpanRelativeTo, Timestamp, civil::DateTime, fmt::rfc2822, tz::TimeZone};
use tollgate_core::Tick;

/// A number from here on is seconds since the epoch: 31 years are not a window.
const LEAST_EPOCH: u64 = 1_000_000_000;
/// A number from here on is milliseconds since the epoch: in seconds it would be the year 33 658.
const LEAST_EPOCH_MILLIS: u64 = 1_000_000_000_000;

/// The response's own `Date`, with which the server's other dates are compared.
pub(crate) fn date_of(headers: &HeaderMap) -> Option<Tick> {
    http_date(headers.get(header::DATE)?.to_str().ok()?)
}

/// The duration from `now` until the given time: seconds from now, seconds or milliseconds since the epoch, a date (HTTP, RFC 2822, or
/// RFC 3339 with optional seconds and offset), or a time with units (`6m0s`, `1.5s`, `17ms`). Zero for a time in the past.
pub(crate) fn until(text: &str, now: Tick) -> Option<Duration> {
    let text = text.trim();
    if text.len() > 64 {
        return None;
    }
    if let Some((whole, micros)) = number(text) {
        let since_epoch = |scale: u64| {
            let then = whole
                .checked_mul(scale)?
                .checked_add(micros * scale / 1_000_000)?;
            Some(Duration::from_micros(then.saturating_sub(now)))
        };
        return match whole {
            LEAST_EPOCH_MILLIS.. => since_epoch(1_000),
            LEAST_EPOCH.. => since_epoch(1_000_000),
            _ => Some(Duration::from_secs(whole) + Duration::from_micros(micros)),
        };
    }
    let date = http_date(text).or_else(|| rfc_3339(text));
    match date.or_else(|| rfc_2822(text)) {
        Some(then) => Some(Duration::from_micros(then.saturating_sub(now))),
        None => with_units(text),
    }
}

/// An HTTP-date (RFC 9110 §5.6.7), in any of its three forms.
fn http_date(text: &str) -> Option<Tick> {
    let date = httpdate::parse_http_date(text.trim()).ok()?;
    let since = date.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_micros()).ok()
}

fn rfc_3339(text: &str) -> Option<Tick> {
    let timestamp = text.parse::<Timestamp>().or_else(|_| {
        // Without an offset it is UTC.
        let local = text.parse::<DateTime>()?;
        local.to_zoned(TimeZone::UTC).map(|zoned| zoned.timestamp())
    });
    u64::try_from(timestamp.ok()?.as_microsecond()).ok()
}

/// With an offset or a name of the zone that an HTTP-date does not have: `+0000`, `UTC`.
fn rfc_2822(text: &str) -> Option<Tick> {
    let zoned = rfc2822::parse(text).ok()?;
    u64::try_from(zoned.timestamp().as_microsecond()).ok()
}

/// As Go prints a duration, or as people write one.
fn with_units(text: &str) -> Option<Duration> {
    let span: Span = text.parse().ok()?;
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    Duration::try_from(duration).ok()
}

/// The whole part of a decimal number of at most 15 digits, and the millionths of the rest, rounded up.
pub(crate) fn number(text: &str) -> Option<(u64, u64)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || whole.len() > 15 {
        return None;
    }
    let micros = fraction
        .bytes()
        .chain(std::iter::repeat(b'0'))
        .take(6)
        .fold(0, |micros, digit| micros * 10 + u64::from(digit - b'0'));
    let is_more = fraction.bytes().skip(6).any(|digit| digit != b'0');
    Some((whole.parse().ok()?, micros + u64::from(is_more)))
}

/// The longest wait that the fields ask for: `Retry-After`, and those whose names end like it. A malformed field is ignored.
pub(crate) fn read_retry_after(headers: &HeaderMap, now: Tick) -> Option<Duration> {
    let fields = headers.iter().filter_map(|(name, value)| {
        let (name, text) = (name.as_str(), value.to_str().ok()?.trim());
        if name.ends_with("retry-after-ms") {
            let (whole, micros) = number(text)?;
            let parts = Duration::from_micros(micros.div_ceil(1_000));
            return Some(Duration::from_millis(whole) + parts);
        }
        let is_wait = name.ends_with("retry-after") || name.ends_with("retry-after-seconds");
        is_wait.then(|| wait(text, now))?
    });
    fields.max()
}

fn wait(text: &str, now: Tick) -> Option<Duration> {
    if text.len() > 15 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number with too many digits is a long wait; the caller caps it.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    // Of a list, which a proxy may have made of two fields, the longest. A date has a comma as well.
    let of_list = || {
        let members = text.split(',').map(|member| until(member, now));
        members.flatten().max()
    };
    until(text, now).or_else(of_list)
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue, header};
    use proptest::prelude::*;

    use super::*;

    /// Mon, 10 May 2021 11:00:00 GMT.
    const NOW: Tick = 1_620_644_400_000_000;

    #[test]
    fn a_moment_is_read_in_every_way_that_servers_write_it() {
        for (text, millis) in [
            ("0", 0),
            ("17", 17_000),
            ("1.5", 1_500),
            ("1000000000", 0),
            ("1620644460", 60_000),
            ("1620644460.25", 60_250),
            ("1620644460250", 60_250),
            ("1000000000000", 0),
            ("Mon, 10 May 2021 11:01:00 GMT", 60_000),
            ("Monday, 10-May-21 11:01:00 GMT", 60_000),
            ("2021-05-10T11:01:00Z", 60_000),
            ("2021-05-10T13:01:00.5+02:00", 60_500),
            ("2021-05-10T11:01Z", 60_000),
            ("2021-05-10T10:59:00Z", 0),
            ("Mon, 10 May 2021 13:01:00 +0200", 60_000),
            ("2m59.56s", 179_560),
            ("17ms", 17),
            ("1d2h", 93_600_000),
            ("30 seconds", 30_000),
            ("PT30S", 30_000),
            ("1969-05-10T10:59:00Z", u64::MAX),
        ] {
            let expected = (millis != u64::MAX).then(|| Duration::from_millis(millis));
            assert_eq!(until(text, NOW), expected, "{text}");
        }
    }

    #[test]
    fn a_text_of_more_than_64_characters_is_ignored() {
        let text = format!("1.{:0<62}", 5);
        assert_eq!(until(&text, NOW), Some(Duration::from_millis(1_500)));
        assert_eq!(until(&format!("{text}0"), NOW), None);
    }

    #[test]
    fn what_is_no_moment_is_ignored() {
        for text in [
            "",
            " ",
            "-1",
            "1.",
            ".5",
            "1e3",
            "-30s",
            "1 month",
            "soon",
            "1234567890123456",
            "Mon, 10 May 2021",
            "2021-05-10T25:00Z",
            "١٢",
        ] {
            assert_eq!(until(text, NOW), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,70}", now in any::<Tick>()) {
            let _ = until(&text, now);
        }

        #[test]
        fn no_date_panics(text in "[0-9]{1,6}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+][0-9]{2}:[0-9]{2})?", now in any::<Tick>()) {
            let _ = until(&text, now);
        }
    }

    /// Sun, 06 Nov 1994 08:49:37 GMT.
    const THEN: Tick = 784_111_777_000_000;

    fn of(values: &[&[u8]]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(
                header::RETRY_AFTER,
                HeaderValue::from_bytes(value).expect("a value"),
            );
        }
        read_retry_after(&headers, THEN).map(|wait| wait.as_secs())
    }

    #[test]
    fn it_is_seconds_or_a_date() {
        assert_eq!(of(&[b"120"]), Some(120));
        assert_eq!(of(&[b"0"]), Some(0));
        assert_eq!(of(&[b"Sun, 06 Nov 1994 08:50:37 GMT"]), Some(60));
        assert_eq!(of(&[b"Sun, 06 Nov 1994 08:00:00 GMT"]), Some(0));
        assert_eq!(of(&[b"99999999999999999999999999"]), Some(u64::MAX));
    }

    #[test]
    fn of_several_the_longest_counts() {
        assert_eq!(of(&[b"1", b"60", b"x"]), Some(60));
        assert_eq!(of(&[b"1, 60"]), Some(60));
    }

    #[test]
    fn what_servers_really_send_is_read() {
        for (name, text, millis) in [
            ("retry-after", "2.0", 2_000),
            ("retry-after", "0.25", 250),
            ("retry-after", "30s", 30_000),
            ("retry-after", "1m30s", 90_000),
            ("retry-after", "1994-11-06T08:50:37Z", 60_000),
            // A moment, since 31 years are no wait.
            ("retry-after", "1784111777", 1_000_000_000_000),
            ("retry-after-ms", "1500", 1_500),
            ("x-ms-retry-after-ms", "1500.0", 1_500),
            ("x-ratelimit-retry-after", "7", 7_000),
            ("x-rate-limit-retry-after-seconds", "7", 7_000),
        ] {
            let value = HeaderValue::from_static(text);
            let headers = HeaderMap::from_iter([(HeaderName::from_static(name), value)]);
            let expected = Duration::from_millis(millis);
            assert_eq!(
                read_retry_after(&headers, THEN),
                Some(expected),
                "{name}: {text}"
            );
        }
    }

    #[test]
    fn what_is_malformed_is_ignored() {
        for value in [&b""[..], b"-1", b"+1", b"soon", b"\xff"] {
            assert_eq!(of(&[value]), None, "{value:?}");
        }
    }
}
