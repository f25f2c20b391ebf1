//! A constant as the key, or as a part of it.

use std::borrow::Cow;

use tollgate_core::{KeyBuf, PartKind};

use crate::key::extractor::{Extracted, KeyExtractor};

use crate::head::Head;

/// Counts all requests together, or thresholds a key: `(constant("export"), header("x-api-key"))`.
///
/// The key has one part of [`PartKind::CONSTANT`].
pub fn constant(value: impl AsRef<[u8]>) -> Constant {
    Constant {
        value: value.as_ref().into(),
    }
}

/// The extractor that [`constant`] makes.
#[derive(Clone, Debug)]
pub struct Constant {
    value: Box<[u8]>,
}

impl KeyExtractor for Constant {
    fn extract(&self, _: &Head<'_>, key: &mut KeyBuf) -> Extracted {
        key.push(PartKind::CONSTANT, &self.value);
        Extracted::Key
    }

    fn subject_type(&self) -> Cow<'static, str> {
        "constant".into()
    }
}
