//! Values of structured fields in canonical form (RFC 9651 §4.1).

use bytes::Bytes;
use http::HeaderValue;
use tollgate_core::MAX_UNITS;

use crate::header::line::Line;

/// Begins the next member.
#[inline]
pub(super) fn separate(line: &mut Line) {
    if !line.is_empty() {
        line.push(b", ");
    }
}

/// Adds an integer, at most the fifteen digits that a structured field can carry.
#[inline]
pub(super) fn push_integer(line: &mut Line, value: u64) {
    line.push(itoa::Buffer::new().format(value.min(MAX_UNITS)).as_bytes());
}

/// A quoted string. `None` for text that has none: only visible ASCII and the space can be in it.
pub(super) fn string(text: &str) -> Option<String> {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            ' '..='~' => quoted.push(character),
            _ => return None,
        }
    }
    quoted.push('"');
    Some(quoted)
}

/// The field's value; `None` if there is no member, because an empty list is not sent at all.
pub(super) fn value(line: &[u8]) -> Option<HeaderValue> {
    if line.is_empty() {
        return None;
    }
    HeaderValue::from_bytes(line).ok()
}

/// A copy whose clones are counted on cache lines of its own: not with other values, nor with the clones of `value`.
pub(super) fn with_own_count(value: &HeaderValue) -> Option<HeaderValue> {
    HeaderValue::from_maybe_shared(Bytes::from_owner(Lines(value.as_bytes().into()))).ok()
}

/// The count of a `Bytes` lies with its owner, and is aligned as it is.
#[repr(align(128))]
struct Lines(Box<[u8]>);

impl AsRef<[u8]> for Lines {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
