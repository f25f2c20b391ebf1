//! A sentence.

use std::{fmt::Write as _, time::Duration};

use bytes::Bytes;

use crate::{header::whole_seconds, rejection::facts::Facts};

pub(super) fn text(facts: &Facts<'_>, wait: Option<Duration>) -> Bytes {
    let title = if facts.is_quota() {
        "Quota exceeded"
    } else {
        facts.phrase()
    };
    let mut text = format!("{title}.");
    if let Some(detail) = facts.detail() {
        text.push(' ');
        text.push_str(&detail);
    }
    if let Some(wait) = wait {
        // Writing to a string cannot fail.
        let _ = write!(text, " Try again in {} s.", whole_seconds(wait));
    }
    text.push('\n');
    text.into()
}
