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
                let millis = wait.map(|wait| wait.as_micros().div_ceil(1_000));
                closed(begun, ",\"retry_after_ms\":", millis, "", "}")
            }
            Self::Text(begun) => {
                let seconds = wait.map(|wait| u128::from(whole_seconds(wait)));
                closed(begun.as_bytes(), " Try again in ", seconds, " s.", "\n")
            }
        }
    }
}

fn closed(begun: &[u8], before: &str, wait: Option<u128>, after: &str, end: &str) -> Bytes {
    let mut body = Vec::with_capacity(begun.len() + 64);
    body.extend_from_slice(begun);
    if let Some(wait) = wait {
        body.extend_from_slice(before.as_bytes());
        body.extend_from_slice(itoa::Buffer::new().format(wait).as_bytes());
        body.extend_from_slice(after.as_bytes());
    }
    body.extend_from_slice(end.as_bytes());
    body.into()
}
