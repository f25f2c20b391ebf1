//! A small JSON object.

use serde::Serialize;
use tollgate_core::Reason;

use crate::rejection::{details::DenialDetails, open_body::OpenBody};

#[derive(Serialize)]
struct Body<'a> {
    error: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
}

pub(super) fn json(details: &DenialDetails<'_>) -> OpenBody {
    let detail = details.detail();
    OpenBody::object(&Body {
        error: match details.reason {
            Reason::Quota => "rate_limit_exceeded",
            Reason::Never => "cost_too_high",
            Reason::Slots => "too_many_at_once",
            Reason::QueueFull => "too_many_waiting",
            Reason::WaitExpired => "waited_too_long",
            Reason::NoKey => "no_key",
            _ => "unavailable",
        },
        message: detail.as_deref().unwrap_or(details.title()),
        rule: details.exceeded.first().map(|policy| policy.name),
    })
}
