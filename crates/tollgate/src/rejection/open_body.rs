//! A JSON object that lacks the wait.

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

/// A JSON object without its last member and its closing brace. What comes before the wait is the same for each denial
/// by a rule, and is serialised once.
#[derive(Debug)]
pub(super) struct OpenObject(Vec<u8>);

impl OpenObject {
    /// `members` is a struct that writes at least one member.
    pub(super) fn new(members: &impl Serialize) -> Self {
        // The bodies are strings and numbers, which always serialise; an empty object would still be JSON.
        let mut object = serde_json::to_vec(members).unwrap_or_else(|_| b"{}".to_vec());
        object.pop();
        Self(object)
    }

    /// The object, with `retry_after_ms` where there is a wait: in whole milliseconds, rounded up.
    pub(super) fn close(&self, wait: Option<Duration>) -> Bytes {
        let mut object = Vec::with_capacity(self.0.len() + 48);
        object.extend_from_slice(&self.0);
        if let Some(wait) = wait {
            if object.len() > 1 {
                object.push(b',');
            }
            object.extend_from_slice(b"\"retry_after_ms\":");
            let millis = wait.as_micros().div_ceil(1_000);
            object.extend_from_slice(itoa::Buffer::new().format(millis).as_bytes());
        }
        object.push(b'}');
        object.into()
    }
}
