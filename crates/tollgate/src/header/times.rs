//! Times in fields: whole seconds, moments, and `Retry-After` (RFC 9110 §10.2.3).

use std::time::{Duration, UNIX_EPOCH};

use http::{
    HeaderMap, HeaderValue,
    header::{DATE, RETRY_AFTER},
};
use tollgate_core::{Retry, Tick, wall_clock};

/// The retry time for the client; `None` if no wait helps, or if it is not known.
///
/// The jitter extends the time by up to `jitter_percent`. It depends only on `seed` (the key), so that clients return at different
/// times, and a client that retries early gets a shorter time each time.
pub(crate) fn retry_delay(retry: Retry, jitter_percent: u8, seed: u64) -> Option<Duration> {
    let Retry::After(wait) = retry else {
        return None;
    };
    if jitter_percent == 0 {
        return Some(wait);
    }
    // In 1/2^32. Constant per key, so the jitter is proportional to the time.
    let share = u128::from(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32);
    let longest = wait.as_micros() * u128::from(jitter_percent) / 100;
    let jitter = u64::try_from((longest * share) >> 32).unwrap_or(u64::MAX);
    Some(wait.saturating_add(Duration::from_micros(jitter)))
}

/// Sets the field to whole seconds, rounded up, at least 1. Keeps an existing larger number, and an existing date.
pub(crate) fn write_retry_after(map: &mut HeaderMap, delay: Duration) {
    let mut seconds = whole_seconds(delay);
    for value in map.get_all(RETRY_AFTER) {
        let Ok(text) = value.to_str() else { continue };
        if text.ends_with(" GMT") {
            return;
        }
        if let Ok(other) = text.parse() {
            seconds = seconds.max(other);
        }
    }
    let mut digits = itoa::Buffer::new();
    if let Ok(value) = HeaderValue::from_str(digits.format(seconds)) {
        let _ = map.try_insert(RETRY_AFTER, value);
    }
}

/// From when a response's times count, by its own clock: its `Date`, or when it was `decided` by the clock of this machine, where the
/// server adds the `Date` later; by default now. The store's clock may be minutes off.
pub(crate) fn response_time(map: &HeaderMap, decided: Option<Tick>) -> Tick {
    // A date says nothing of the part of its second: the last one is not too early.
    let date = map.get(DATE).and_then(http_date);
    let latest = date.map(|date| date.saturating_add(999_999));
    latest.or(decided).unwrap_or_else(wall_clock)
}

/// `None`: it is no date (RFC 9110 §5.6.7) since 1970.
pub(super) fn http_date(value: &HeaderValue) -> Option<Tick> {
    let date = httpdate::parse_http_date(value.to_str().ok()?.trim()).ok()?;
    u64::try_from(date.duration_since(UNIX_EPOCH).ok()?.as_micros()).ok()
}

/// The end of a time from `now`, in whole seconds since the Unix epoch, rounded up.
pub(crate) fn epoch_seconds(now: Tick, lasts: Duration) -> u64 {
    let micros = u64::try_from(lasts.as_micros()).unwrap_or(u64::MAX);
    now.saturating_add(micros).div_ceil(1_000_000)
}

/// Whole seconds, rounded up, at least one: rounding down would promise units too early, and 0 would mean "now".
pub(crate) const fn whole_seconds(duration: Duration) -> u64 {
    let seconds = duration
        .as_secs()
        .saturating_add((duration.subsec_nanos() > 0) as u64);
    if seconds == 0 { 1 } else { seconds }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(delay: Duration, before: &[&'static str]) -> Vec<String> {
        let mut map = HeaderMap::new();
        for value in before {
            map.append(RETRY_AFTER, HeaderValue::from_static(value));
        }
        write_retry_after(&mut map, delay);
        map.get_all(RETRY_AFTER)
            .iter()
            .map(|value| value.to_str().expect("ascii").to_owned())
            .collect()
    }

    #[test]
    fn it_is_rounded_up_and_never_zero() {
        assert_eq!(written(Duration::ZERO, &[]), ["1"]);
        assert_eq!(written(Duration::new(1, 1), &[]), ["2"]);
        assert_eq!(written(Duration::from_secs(17), &[]), ["17"]);
    }

    #[test]
    fn a_larger_one_is_kept() {
        assert_eq!(written(Duration::from_secs(5), &["9"]), ["9"]);
        assert_eq!(written(Duration::from_secs(9), &["5"]), ["9"]);
        assert_eq!(written(Duration::from_secs(5), &["2", "7"]), ["7"]);
    }

    #[test]
    fn a_date_is_kept_and_an_invalid_value_is_not() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(written(Duration::from_secs(5), &[date]), [date]);
        for wrong in ["", "-1", "2.0", "30s"] {
            assert_eq!(written(Duration::from_secs(5), &[wrong]), ["5"], "{wrong}");
        }
    }

    #[test]
    fn there_is_none_if_waiting_does_not_help() {
        for retry in [Retry::Now, Retry::Never, Retry::Unknown] {
            assert_eq!(retry_delay(retry, 10, 42), None);
        }
        assert_eq!(
            retry_delay(Retry::after_micros(0), 0, 1),
            Some(Duration::ZERO)
        );
    }

    proptest! {
        #[test]
        fn jitter_only_adds_and_falls_with_the_wait(
            wait in 0..10_u64.pow(14), less in 0..10_u64.pow(14), percent: u8, seed: u64,
        ) {
            let less = less.min(wait);
            let jittered = |micros| retry_delay(Retry::after_micros(micros), percent, seed).expect("a wait");
            let (long, short) = (jittered(wait), jittered(less));
            prop_assert!(long >= Duration::from_micros(wait));
            prop_assert!(long.as_micros() <= u128::from(wait) * (100 + u128::from(percent)) / 100 + 1);
            prop_assert!(short <= long);
        }
    }
}
