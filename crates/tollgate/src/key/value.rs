//! Client-sent values as parts of a key.

use tollgate_core::{KeyBuf, PartKind};

use crate::key::extractor::{Extracted, NoKey};

/// The single item of `values`.
pub(crate) fn exactly_one<T>(mut values: impl Iterator<Item = T>) -> Result<T, NoKey> {
    match (values.next(), values.next()) {
        (Some(value), None) => Ok(value),
        (None, _) => Err(NoKey::Absent),
        (Some(_), Some(_)) => Err(NoKey::Ambiguous),
    }
}

/// Adds a named value. An empty one is no key, so that clients without a value do not share a bucket by accident.
///
/// The name is part of the key, so that the keys of `header("x-user").or(header("x-device"))` never collide.
pub(crate) fn push_named(
    key: &mut KeyBuf,
    kind: PartKind,
    name: &str,
    value: Result<impl AsRef<[u8]>, NoKey>,
) -> Extracted {
    match value {
        Ok(value) if !value.as_ref().is_empty() => {
            key.push(kind, name);
            key.push(kind, value);
            Extracted::Key
        }
        Ok(_) => Extracted::Nothing(NoKey::Absent),
        Err(why) => Extracted::Nothing(why),
    }
}

/// The kind and the value of a key of one value, which may have a name in front.
pub(crate) fn only_value(key: &KeyBuf) -> Option<(PartKind, &[u8])> {
    let mut parts = key.parts();
    let first = parts.next()?;
    let is_named = [
        PartKind::HEADER,
        PartKind::COOKIE,
        PartKind::QUERY_PARAMETER,
        PartKind::PATH_PARAMETER,
        PartKind::METADATA,
    ]
    .contains(&first.0);
    let value = match is_named {
        true => parts.next().filter(|(kind, _)| *kind == first.0)?,
        false => first,
    };
    parts.next().is_none().then_some(value)
}
