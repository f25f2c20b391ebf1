//! What a server says to a request.

use std::{
    fmt::Display,
    time::{Duration, UNIX_EPOCH},
};

use http::{HeaderMap, StatusCode, header};

/// What a server says to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The status; or why there is none.
    pub(crate) status: String,
    pub(crate) kind: Kind,
    /// The wait of `Retry-After`.
    pub(crate) retry_after: Option<Duration>,
    /// The fields that say what is left.
    pub(crate) limits: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Allowed,
    Denied,
    Failed,
}

impl Answer {
    pub(crate) fn of(status: StatusCode, headers: &HeaderMap, denials: &[u16]) -> Self {
        let is_denied = denials.contains(&status.as_u16());
        let is_of_limits = |name: &str| name.trim_start_matches("x-").starts_with("ratelimit");
        let limits = headers
            .iter()
            .filter(|(name, _)| is_of_limits(name.as_str()));
        let limits = limits
            .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())));
        Self {
            status: status.as_u16().to_string(),
            kind: if is_denied {
                Kind::Denied
            } else {
                Kind::Allowed
            },
            retry_after: retry_after(headers),
            limits: limits.collect(),
        }
    }

    pub(crate) fn failed(why: &(impl Display + ?Sized)) -> Self {
        Self {
            status: why.to_string(),
            kind: Kind::Failed,
            retry_after: None,
            limits: Vec::new(),
        }
    }
}

/// Seconds, or a date on the clock of the server.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    let date = |text: &str| {
        httpdate::parse_http_date(text)
            .ok()?
            .duration_since(UNIX_EPOCH)
            .ok()
    };
    let now = date(headers.get(header::DATE)?.to_str().ok()?)?;
    Some(date(text)?.saturating_sub(now))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_denial_says_when_to_come_back_in_seconds_or_as_a_date() {
        let date = "Fri, 27 Nov 2026 12:00:00 GMT";
        for (text, wait) in [
            ("7", Some(7)),
            ("Fri, 27 Nov 2026 12:00:09 GMT", Some(9)),
            ("Fri, 27 Nov 2026 11:00:00 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::DATE, HeaderValue::from_static(date));
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(text));
            let answer = Answer::of(StatusCode::TOO_MANY_REQUESTS, &headers, &[429]);
            assert_eq!(answer.kind, Kind::Denied, "{text}");
            assert_eq!(answer.retry_after, wait.map(Duration::from_secs), "{text}");
        }
    }
}
