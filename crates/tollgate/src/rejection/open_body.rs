//! A body without the retry time.

use std::time::Duration;

use bytes::Bytes;

use crate::header::whole_seconds;

/// A body without its end, the retry time. The rest is the same for each denial by a quota, and is prepared once.
#[derive(Debug)]
pub(super) enum OpenBody {
    /// A JSON object with a member or more, without its closing brace.
    Object(String),
    /// Sentences, without the line feed.
    Text(String),
}

impl OpenBody {
    /// The complete body, with the retry time if there is one: in an object as `retry_after_ms`, in text in seconds as in
    /// `Retry-After`. Both are rounded up.
    pub(super) fn close(&self, wait: Option<Duration>) -> Bytes {
        match self {
            Self::Object(begun) => {
                let wait = wait.map(whole_millis);
                closed(begun.as_bytes(), ",\"retry_after_ms\":", wait, "", "}")
            }
            Self::Text(begun) => {
                let seconds = wait.map(whole_seconds);
                closed(begun.as_bytes(), " Try again in ", seconds, " s.", "\n")
            }
        }
    }
}

/// Rounded up and capped.
fn whole_millis(wait: Duration) -> u64 {
    let millis = wait.as_secs().saturating_mul(1_000);
    millis.saturating_add(u64::from(wait.subsec_micros().div_ceil(1_000)))
}

fn closed(begun: &[u8], before: &str, wait: Option<u64>, after: &str, end: &str) -> Bytes {
    let mut digits = itoa::Buffer::new();
    let parts: [&[u8]; 5] = match wait {
        Some(wait) => [
            begun,
            before.as_bytes(),
            digits.format(wait).as_bytes(),
            after.as_bytes(),
            end.as_bytes(),
        ],
        None => [begun, end.as_bytes(), b"", b"", b""],
    };
    // With the exact capacity, so that `Bytes` takes it without a copy.
    let mut body = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
    for part in parts {
        body.extend_from_slice(part);
    }
    body.into()
}
