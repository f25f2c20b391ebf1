//! The text of a field while it is written, and values of structured fields in canonical form (RFC 9651 §4.1).

use std::ops::Deref;

use bytes::Bytes;
use http::HeaderValue;
use tollgate_core::MAX_UNITS;

/// Room for a field of a few policies without the heap.
const INLINE: usize = 192;

/// The text of a field while it is written: on the stack for a few policies.
///
/// An array of our own: with `SmallVec` each piece takes a call that may grow it.
#[derive(Debug)]
pub(super) struct Line {
    inline: [u8; INLINE],
    /// The number of bytes of all of it.
    len: usize,
    /// All of it where it does not fit.
    spilled: Vec<u8>,
}

impl Line {
    #[inline]
    pub(super) const fn new() -> Self {
        Self {
            inline: [0; INLINE],
            len: 0,
            spilled: Vec::new(),
        }
    }

    /// Adds a piece of text.
    #[inline]
    pub(super) fn push(&mut self, piece: &[u8]) {
        let end = self.len + piece.len();
        match self.inline.get_mut(self.len..end) {
            Some(to) => to.copy_from_slice(piece),
            None => self.push_spilled(piece),
        }
        self.len = end;
    }

    fn push_spilled(&mut self, piece: &[u8]) {
        if let Some(before) = self.inline.get(..self.len) {
            self.spilled.extend_from_slice(before);
        }
        self.spilled.extend_from_slice(piece);
    }
}

impl Deref for Line {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.inline.get(..self.len).unwrap_or(&self.spilled)
    }
}

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
pub(super) fn field_value(line: &[u8]) -> Option<HeaderValue> {
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
