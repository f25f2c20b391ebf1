//! `application/problem+json` (RFC 9457).

use serde::Serialize;

use crate::rejection::{details::DenialDetails, open_body::OpenBody};

/// The type that the `RateLimit` drafts ask IANA to register.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

#[derive(Serialize)]
struct Problem<'a> {
    r#type: &'a str,
    title: &'a str,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    // The draft's name, whose hyphens contradict RFC 9457.
    #[serde(rename = "violated-policies", skip_serializing_if = "Vec::is_empty")]
    violated_policies: Vec<&'a str>,
    /// Why, where it is no rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

pub(super) fn problem(details: &DenialDetails<'_>) -> OpenBody {
    OpenBody::object(&Problem {
        r#type: if details.is_quota() {
            QUOTA_EXCEEDED
        } else {
            "about:blank"
        },
        title: details.title(),
        status: details.status.as_u16(),
        detail: details.detail(),
        violated_policies: details.exceeded.iter().map(|policy| policy.name).collect(),
        reason: details.reason_word(),
    })
}
