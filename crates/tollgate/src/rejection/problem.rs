//! `application/problem+json` (RFC 9457).

use serde::Serialize;

use crate::rejection::{facts::Facts, open_body::OpenBody};

/// The type that the `RateLimit` drafts ask IANA to register.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

#[derive(Serialize)]
struct Problem<'a> {
    r#type: &'a str,
    title: &'a str,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    // The draft's name for it, with hyphens against the advice of RFC 9457.
    #[serde(rename = "violated-policies", skip_serializing_if = "Vec::is_empty")]
    violated_policies: Vec<&'a str>,
}

pub(super) fn problem(facts: &Facts<'_>) -> OpenBody {
    OpenBody::object(&Problem {
        r#type: if facts.is_quota() {
            QUOTA_EXCEEDED
        } else {
            "about:blank"
        },
        title: facts.title(),
        status: facts.status.as_u16(),
        detail: facts.detail(),
        violated_policies: facts.exceeded.iter().map(|policy| policy.name).collect(),
    })
}
