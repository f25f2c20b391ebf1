//! Bodies of responses to denials, without the retry time.

use std::time::Duration;

use bytes::Bytes;
use tollgate_core::Reason;

use crate::{
    header::whole_seconds,
    json_text::{JsonObject, push_list, push_text},
    rejection::details::DenialDetails,
};

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
                closed(begun, ",\"retry_after_ms\":", wait, "}", "}")
            }
            Self::Text(begun) => {
                let seconds = wait.map(whole_seconds);
                closed(begun, " Try again in ", seconds, " s.\n", "\n")
            }
        }
    }
}

/// Rounded up and capped.
fn whole_millis(wait: Duration) -> u64 {
    let millis = wait.as_secs().saturating_mul(1_000);
    millis.saturating_add(u64::from(wait.subsec_micros().div_ceil(1_000)))
}

/// What has begun, and the end that it has with a wait or without one.
fn closed(begun: &str, before: &str, wait: Option<u64>, after: &str, without: &str) -> Bytes {
    let mut digits = itoa::Buffer::new();
    let parts = match wait {
        Some(wait) => [begun, before, digits.format(wait), after],
        None => [begun, without, "", ""],
    };
    // It has the exact capacity, so that `Bytes` takes it without a copy.
    parts.concat().into()
}

/// The type that the `RateLimit` drafts ask IANA to register.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

pub(super) fn problem(details: &DenialDetails<'_>) -> OpenBody {
    let mut body = JsonObject::new();
    let is_quota = details.is_quota();
    body.text(
        "type",
        if is_quota {
            QUOTA_EXCEEDED
        } else {
            "about:blank"
        },
    );
    body.text("title", details.title());
    body.number("status", u64::from(details.status.as_u16()));
    if let Some(detail) = details.detail() {
        body.text("detail", &detail);
    }
    if !details.exceeded.is_empty() {
        // The draft's name, whose hyphens contradict RFC 9457.
        body.member("violated-policies", |json| {
            push_list(json, &details.exceeded, |json, policy| {
                push_text(json, policy.name)
            });
        });
    }
    if let Some(reason) = details.reason_word() {
        body.text("reason", reason);
    }
    OpenBody::Object(body.open())
}

pub(super) fn json(details: &DenialDetails<'_>) -> OpenBody {
    let mut body = JsonObject::new();
    let error = match details.reason {
        None => "refused",
        Some(Reason::Quota) => "rate_limit_exceeded",
        Some(Reason::Never) => "cost_too_high",
        Some(Reason::Slots) => "too_many_at_once",
        Some(Reason::QueueFull) => "too_many_waiting",
        Some(Reason::WaitExpired) => "waited_too_long",
        Some(Reason::NoKey) => "no_key",
        Some(Reason::Blocked) => "blocked",
        Some(_) => "unavailable",
    };
    body.text("error", error);
    let detail = details.detail();
    body.text("message", detail.as_deref().unwrap_or(details.title()));
    if let Some(policy) = details.exceeded.first() {
        body.text("rule", policy.name);
    }
    OpenBody::Object(body.open())
}

pub(super) fn text(details: &DenialDetails<'_>) -> OpenBody {
    let mut text = format!("{}.", details.title());
    if let Some(detail) = details.detail() {
        text.push(' ');
        text.push_str(&detail);
    }
    OpenBody::Text(text)
}
