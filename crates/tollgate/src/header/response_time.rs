//! The time of a response, from which a moment in one of its fields is counted.

use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderMap, header};
use tollgate_core::{Clock, Tick};

/// When a response is sent, by its own clock: that of its `Date`, or of this machine, where the server adds the `Date` later. The
/// store's clock may be minutes off.
pub(crate) fn response_time(map: &HeaderMap) -> Tick {
    let date = || {
        let date = map.get(header::DATE)?.to_str().ok()?;
        let since = httpdate::parse_http_date(date).ok()?;
        u64::try_from(since.duration_since(UNIX_EPOCH).ok()?.as_micros()).ok()
    };
    // A date says nothing of the part of its second: the last one is not too early.
    let latest = date().map(|date| date.saturating_add(999_999));
    latest.unwrap_or_else(|| Clock::system().now())
}

/// The end of a time from `now`, in whole seconds since the Unix epoch, rounded up.
pub(crate) fn epoch_seconds(now: Tick, lasts: Duration) -> u64 {
    let micros = u64::try_from(lasts.as_micros()).unwrap_or(u64::MAX);
    now.saturating_add(micros).div_ceil(1_000_000)
}
