//! Extractors that are made of functions; and percent-decoding, so that all spellings of a value are one key.
//!
//! The crate `percent-encoding` takes twice the time, and a second pass for `+`.

use std::{
    borrow::Cow,
    fmt::{self, Debug},
};

use tollgate_core::{KeyBuf, PartKind};

use crate::{
    head::Head,
    key::extractor::{Extracted, KeyExtractor, NoKey},
};

/// An extractor that is a function.
#[derive(Clone)]
pub(crate) struct ExtractorFn<F> {
    subject_type: &'static str,
    /// Or what is wrong with its name.
    extract: Result<F, String>,
}

pub(crate) fn extractor<F>(subject_type: &'static str, extract: F) -> ExtractorFn<F>
where
    F: Fn(&Head<'_>, &mut KeyBuf) -> Extracted + Send + Sync + 'static,
{
    ExtractorFn {
        subject_type,
        extract: Ok(extract),
    }
}

/// An extractor of one part.
pub(crate) fn part<F>(
    subject_type: &'static str,
    kind: PartKind,
    find: F,
) -> impl KeyExtractor + Clone + Debug
where
    F: for<'h> Fn(&Head<'h>) -> Result<Cow<'h, str>, NoKey> + Clone + Send + Sync + 'static,
{
    extractor(subject_type, move |head, key| match find(head) {
        Ok(found) => {
            key.push(kind, found.as_bytes());
            Extracted::Key
        }
        Err(why) => Extracted::Nothing(why),
    })
}

/// An extractor of a value with a name, or with what is wrong with the name. An empty value is no key, so that clients without a
/// value do not share a bucket by accident.
///
/// The name is part of the key, so that the keys of `header("x-user").or(header("x-device"))` never collide.
pub(crate) fn named<N, F>(
    subject_type: &'static str,
    kind: PartKind,
    name: Result<N, String>,
    find: F,
) -> impl KeyExtractor + Clone + Debug
where
    N: AsRef<str> + Clone + Send + Sync + 'static,
    F: for<'h> Fn(&Head<'h>, &N) -> Result<Cow<'h, [u8]>, NoKey> + Clone + Send + Sync + 'static,
{
    let extract = name.map(|name| {
        move |head: &Head<'_>, key: &mut KeyBuf| match find(head, &name) {
            Ok(value) if !value.is_empty() => {
                key.push(kind, name.as_ref());
                key.push(kind, value);
                Extracted::Key
            }
            Ok(_) => Extracted::Nothing(NoKey::Absent),
            Err(why) => Extracted::Nothing(why),
        }
    });
    ExtractorFn {
        subject_type,
        extract,
    }
}

/// The single item of `values`.
pub(crate) fn exactly_one<T>(mut values: impl Iterator<Item = T>) -> Result<T, NoKey> {
    match (values.next(), values.next()) {
        (Some(value), None) => Ok(value),
        (None, _) => Err(NoKey::Absent),
        (Some(_), Some(_)) => Err(NoKey::Ambiguous),
    }
}

impl<F> KeyExtractor for ExtractorFn<F>
where
    F: Fn(&Head<'_>, &mut KeyBuf) -> Extracted + Send + Sync + 'static,
{
    fn extract(&self, head: &Head<'_>, key: &mut KeyBuf) -> Extracted {
        match &self.extract {
            Ok(extract) => extract(head, key),
            Err(mistake) => Extracted::Nothing(NoKey::Misconfigured(mistake.clone().into())),
        }
    }

    fn subject_type(&self) -> Cow<'static, str> {
        self.subject_type.into()
    }

    fn validate(&self) -> Result<(), String> {
        self.extract.as_ref().map(drop).map_err(String::clone)
    }
}

/// What it was made of may identify a client.
impl<F> fmt::Debug for ExtractorFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(..)", self.subject_type)
    }
}

/// The meaning of `+`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plus {
    /// A space, as in a query.
    Space,
    /// Itself.
    Literal,
}

/// The decoded bytes. A `%` without two hex digits is literal, as in the URL standard of the WHATWG.
pub(crate) fn decoded(encoded: &[u8], plus: Plus) -> Cow<'_, [u8]> {
    let is_space = |byte: u8| byte == b'+' && plus == Plus::Space;
    if !encoded.iter().any(|byte| *byte == b'%' || is_space(*byte)) {
        return encoded.into();
    }
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded;
    while let [byte, behind @ ..] = rest {
        rest = behind;
        if *byte == b'%'
            && let [high, low, behind @ ..] = behind
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            bytes.push(high << 4 | low);
            rest = behind;
        } else {
            bytes.push(if is_space(*byte) { b' ' } else { *byte });
        }
    }
    bytes.into()
}

fn digit(byte: u8) -> Option<u8> {
    // A digit is less than 16.
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}
