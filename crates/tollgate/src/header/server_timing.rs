//! `Server-Timing` (a W3C Recommendation in preparation): how long a request has waited for its quota.
//!
//! ```text
//! Server-Timing: ratelimit;dur=1250.3
//! ```

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Adds the wait in milliseconds, in addition to what the service has measured itself.
pub(crate) fn write(map: &mut HeaderMap, waited: Duration) {
    let tenths = waited.as_micros() / 100;
    let value = format!("ratelimit;dur={}.{}", tenths / 10, tenths % 10);
    if let Ok(value) = HeaderValue::try_from(value) {
        let _ = map.try_append(SERVER_TIMING, value);
    }
}
