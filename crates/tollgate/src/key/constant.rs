//! A constant as the key, or as a part of it.

use std::fmt::Debug;

use tollgate_core::PartKind;

use crate::key::extractor::{Extracted, KeyExtractor, extractor};

/// Counts all requests together, or thresholds a key: `(constant("export"), header("x-api-key"))`.
///
/// The key has one part of [`PartKind::CONSTANT`].
pub fn constant(value: impl AsRef<[u8]>) -> impl KeyExtractor + Clone + Debug {
    let value: Box<[u8]> = value.as_ref().into();
    extractor("constant", move |_, key| {
        key.push(PartKind::CONSTANT, &value);
        Extracted::Key
    })
}
