//! A sentence.

use crate::rejection::{facts::Facts, open_body::OpenBody};

pub(super) fn text(facts: &Facts<'_>) -> OpenBody {
    let mut text = format!("{}.", facts.title());
    if let Some(detail) = facts.detail() {
        text.push(' ');
        text.push_str(&detail);
    }
    OpenBody::Text(text)
}
