//! The request's method as the key.

use std::fmt::Debug;

use tollgate_core::PartKind;

use crate::key::extractor::{Extracted, KeyExtractor, extractor};

/// Counts by the request's method; mostly a part of a tuple. The key has one part of [`PartKind::METHOD`].
///
/// A client may invent methods, and each has its own budget. Reject unknown methods in front of the limit, or combine this
/// with another extractor.
#[must_use]
pub fn method() -> impl KeyExtractor + Clone + Debug {
    extractor("method", |head, key| {
        key.push(PartKind::METHOD, head.method.as_str());
        Extracted::Key
    })
}
