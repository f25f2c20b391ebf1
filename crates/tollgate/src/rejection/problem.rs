//! `application/problem+json` (RFC 9457).

use crate::{
    json_text::{JsonObject, push_list, push_text},
    rejection::{details::DenialDetails, open_body::OpenBody},
};

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
