//! `Retry-After` (RFC 9110 §10.2.3), and what servers really send: fractions, units, lists, and fields of their own.

use std::time::Duration;

use http::HeaderMap;
use tollgate_core::Tick;

use crate::advice::time_until;

/// The longest wait that the fields ask for: `Retry-After`, and those whose names end like it. A malformed field is ignored.
pub(crate) fn read(headers: &HeaderMap, now: Tick) -> Option<Duration> {
    let fields = headers.iter().filter_map(|(name, value)| {
        let (name, text) = (name.as_str(), value.to_str().ok()?.trim());
        if name.ends_with("retry-after-ms") {
            return time_until::milliseconds(text);
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
        let members = text.split(',').map(|member| time_until::until(member, now));
        members.flatten().max()
    };
    time_until::until(text, now).or_else(of_list)
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue, header};

    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT.
    const NOW: Tick = 784_111_777_000_000;

    fn of(values: &[&[u8]]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(
                header::RETRY_AFTER,
                HeaderValue::from_bytes(value).expect("a value"),
            );
        }
        read(&headers, NOW).map(|wait| wait.as_secs())
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
            assert_eq!(read(&headers, NOW), Some(expected), "{name}: {text}");
        }
    }

    #[test]
    fn what_is_malformed_is_ignored() {
        for value in [&b""[..], b"-1", b"+1", b"soon", b"\xff"] {
            assert_eq!(of(&[value]), None, "{value:?}");
        }
    }
}
