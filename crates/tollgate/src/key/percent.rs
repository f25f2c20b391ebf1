//! Percent-decoding, so that all spellings of a value are one key.
//!
//! The crate `percent-encoding` takes twice the time, and a second pass for `+`.

use std::borrow::Cow;

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
