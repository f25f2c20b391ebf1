//! The request's method as the key.

use std::borrow::Cow;

use tollgate_core::{KeyBuf, PartKind};

use crate::key::extractor::{Extracted, KeyExtractor};

use crate::head::Head;

/// Counts by the request's method; mostly a part of a tuple. The key has one part of [`PartKind::METHOD`].
///
/// A client may invent methods, and each has its own budget. Reject unknown methods in front of the limit, or combine this
/// with another extractor.
#[must_use]
pub fn method() -> Method {
    Method(())
}

/// The extractor that [`method()`] makes.
#[derive(Clone, Debug)]
pub struct Method(());

impl KeyExtractor for Method {
    fn extract(&self, head: &Head<'_>, key: &mut KeyBuf) -> Extracted {
        key.push(PartKind::METHOD, head.method.as_str());
        Extracted::Key
    }

    fn subject_type(&self) -> Cow<'static, str> {
        "method".into()
    }
}
