//! `Server-Timing` (a W3C Recommendation in preparation): how long a request has waited for its quota.
//!
//! ```text
//! Server-Timing: ratelimit;dur=1250.3
//! ```

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Adds the wait in milliseconds, in addition to what the service has measured itself.
#[cold]
pub(crate) fn write(map: &mut HeaderMap, waited: Duration) {
    let tenths = waited.as_micros() / 100;
    let value = format!("ratelimit;dur={}.{}", tenths / 10, tenths % 10);
    if let Ok(value) = HeaderValue::try_from(value) {
        let _ = map.try_append(SERVER_TIMING, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_written_in_milliseconds_next_to_other_timings() {
        let mut map = HeaderMap::new();
        map.insert(SERVER_TIMING, HeaderValue::from_static("db;dur=53"));
        write(&mut map, Duration::from_micros(1_250_349));
        write(&mut map, Duration::from_micros(99));
        let all: Vec<_> = map.get_all(SERVER_TIMING).iter().collect();
        assert_eq!(
            all,
            ["db;dur=53", "ratelimit;dur=1250.3", "ratelimit;dur=0.0"]
        );
    }
}
