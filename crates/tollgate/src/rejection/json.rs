//! A small JSON object.

use serde::Serialize;
use tollgate_core::Reason;

use crate::rejection::{facts::Facts, open_object::OpenObject};

#[derive(Serialize)]
struct Body<'a> {
    error: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
}

pub(super) fn json(facts: &Facts<'_>) -> OpenObject {
    let detail = facts.detail();
    let phrase = if facts.is_quota() {
        "Quota exceeded"
    } else {
        facts.phrase()
    };
    OpenObject::new(&Body {
        error: match facts.reason {
            Reason::Quota => "rate_limited",
            Reason::Never => "cost_too_high",
            Reason::NoKey => "no_key",
            _ => "unavailable",
        },
        message: detail.as_deref().unwrap_or(phrase),
        rule: facts.exceeded.first().map(|policy| policy.name),
    })
}
