//! `Retry-After` (RFC 9110 §10.2.3).

use std::time::Duration;

use http::{HeaderMap, header};
use tollgate_core::Tick;

use crate::advice::time_until;

/// The longest wait that the fields ask for. A malformed field is ignored.
pub(crate) fn read(headers: &HeaderMap, now: Tick) -> Option<Duration> {
    let values = headers.get_all(header::RETRY_AFTER).into_iter();
    values
        .filter_map(|value| wait(value.to_str().ok()?.trim(), now))
        .max()
}

fn wait(text: &str, now: Tick) -> Option<Duration> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number with too many digits is a long wait; the caller caps it.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let then = time_until::http_date(text)?;
    Some(Duration::from_micros(then.saturating_sub(now)))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

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
    }

    #[test]
    fn what_is_malformed_is_ignored() {
        for value in [
            &b""[..],
            b"2.0",
            b"30s",
            b"-1",
            b"+1",
            b"soon",
            b"1, 2",
            b"\xff",
            b"2021-05-10T11:00Z",
        ] {
            assert_eq!(of(&[value]), None, "{value:?}");
        }
    }
}
