//! A sentence.

use crate::rejection::{details::DenialDetails, open_body::OpenBody};

pub(super) fn text(details: &DenialDetails<'_>) -> OpenBody {
    let mut text = format!("{}.", details.title());
    if let Some(detail) = details.detail() {
        text.push(' ');
        text.push_str(&detail);
    }
    OpenBody::Text(text)
}
