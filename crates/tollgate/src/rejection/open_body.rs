//! A body that lacks the wait.

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::header::whole_seconds;

/// A body without its end, the wait. What comes before is the same for each denial by a quota, and is made once.
#[derive(Debug)]
pub(super) enum OpenBody {
    /// A JSON object with a member or more, without its closing brace.
    Object(Vec<u8>),
    /// Sentences, without the line feed.
    Text(String),
}

impl OpenBody {
    /// A JSON object with these members: a struct that writes at least one.
    pub(super) fn object(members: &impl Serialize) -> Self {
        let mut object = serde_json::to_vec(members).expect("strings and numbers always serialise");
        object.pop();
        Self::Object(object)
    }

    /// The whole body, with the wait if there is one: an object has it as `retry_after_ms`, in milliseconds; a text in the
    /// seconds of `Retry-After`. Both are rounded up.
    pub(super) fn close(&self, wait: Option<Duration>) -> Bytes {
        match self {
            Self::Object(begun) => {
                let wait = wait.map(whole_millis);
                closed(begun, ",\"retry_after_ms\":", wait, "", "}")
            }
            Self::Text(begun) => {
                let seconds = wait.map(whole_seconds);
                closed(begun.as_bytes(), " Try again in ", seconds, " s.", "\n")
            }
        }
    }
}

/// Rounded up, at most what a waiting client could count.
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
    // Of the very length, so that it becomes `Bytes` where it is.
    let mut body = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
    for part in parts {
        body.extend_from_slice(part);
    }
    body.into()
}
