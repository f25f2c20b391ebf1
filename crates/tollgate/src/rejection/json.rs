//! A small JSON object.

use tollgate_core::Reason;

use crate::{
    json_text::JsonObject,
    rejection::{details::DenialDetails, open_body::OpenBody},
};

pub(super) fn json(details: &DenialDetails<'_>) -> OpenBody {
    let mut body = JsonObject::new();
    let error = match details.reason {
        Reason::Quota => "rate_limit_exceeded",
        Reason::Never => "cost_too_high",
        Reason::Slots => "too_many_at_once",
        Reason::QueueFull => "too_many_waiting",
        Reason::WaitExpired => "waited_too_long",
        Reason::NoKey => "no_key",
        Reason::Blocked => "blocked",
        _ => "unavailable",
    };
    body.text("error", error);
    let detail = details.detail();
    body.text("message", detail.as_deref().unwrap_or(details.title()));
    if let Some(policy) = details.exceeded.first() {
        body.text("rule", policy.name);
    }
    OpenBody::Object(body.open())
}
