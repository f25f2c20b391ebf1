//! Percent-decoding, so that all spellings of a value are one key.
//!
//! The crate `percent-encoding` does the same in twice the time, and with `+` it needs an allocation.

use smallvec::SmallVec;

/// The meaning of `+`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plus {
    /// A space, as in a query.
    Space,
    /// Itself.
    Literal,
}

/// The decoded bytes. A `%` without two hex digits is literal, as in the URL standard of the WHATWG.
pub(crate) fn decoded(encoded: &[u8], plus: Plus) -> Decoded<'_> {
    Decoded {
        rest: encoded,
        plus,
    }
}

/// See [`decoded`].
#[derive(Clone, Debug)]
pub(crate) struct Decoded<'a> {
    rest: &'a [u8],
    plus: Plus,
}

impl Decoded<'_> {
    /// All bytes, without an allocation up to 64.
    pub(crate) fn bytes(self) -> SmallVec<[u8; 64]> {
        self.collect()
    }
}

impl Iterator for Decoded<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        if byte == b'+' && self.plus == Plus::Space {
            return Some(b' ');
        }
        if byte == b'%'
            && let [high, low, rest @ ..] = rest
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            self.rest = rest;
            return Some(high << 4 | low);
        }
        Some(byte)
    }
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}
