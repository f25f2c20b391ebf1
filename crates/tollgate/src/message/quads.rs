//! Base64 a character at a time, for gRPC-Web in text (RFC 4648 §4).

/// The place in a text of base64: quads of characters, one segment after the other, each of which may be padded.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quads {
    /// Characters of the quad that were seen.
    seen: u8,
    /// The bits that no byte was made of yet.
    bits: u8,
    padded: bool,
}

/// What stands in a text of base64 and does not belong there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotBase64;

impl Quads {
    /// Whether a quad has ended here, or none has begun.
    pub(super) fn is_between(self) -> bool {
        self.seen == 0
    }

    /// Goes past one character; the byte that it completes.
    ///
    /// Strict, for what is not understood here could be by a service that is less so, and pass uncounted.
    pub(super) fn pass(&mut self, character: u8) -> Result<Option<u8>, NotBase64> {
        if character == b'=' {
            if self.seen < 2 {
                return Err(NotBase64);
            }
            self.padded = true;
            self.next();
            return Ok(None);
        }
        let value = value(character).ok_or(NotBase64)?;
        if self.padded {
            return Err(NotBase64);
        }
        // Six bits each: 6, 6+2, 4+4, 2+6.
        let byte = match self.seen {
            0 => None,
            1 => Some(self.bits << 2 | value >> 4),
            2 => Some(self.bits << 4 | value >> 2),
            _ => Some(self.bits << 6 | value),
        };
        self.bits = value;
        self.next();
        Ok(byte)
    }

    fn next(&mut self) {
        self.seen += 1;
        if self.seen == 4 {
            *self = Self::default();
        }
    }
}

fn value(character: u8) -> Option<u8> {
    match character {
        b'A'..=b'Z' => Some(character - b'A'),
        b'a'..=b'z' => Some(character - b'a' + 26),
        b'0'..=b'9' => Some(character - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine, prelude::BASE64_STANDARD};
    use proptest::prelude::*;

    use super::*;

    fn decoded(text: &str) -> Result<Vec<u8>, NotBase64> {
        let mut quads = Quads::default();
        let bytes = text.bytes().map(|character| quads.pass(character));
        bytes.filter_map(Result::transpose).collect()
    }

    #[test]
    fn what_is_not_base64_is_refused() {
        for text in ["A A=", "AA\n=", "=AAA", "A===", "AA=A", "AA-_", "AAAA="] {
            assert_eq!(decoded(text), Err(NotBase64), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn padded_segments_are_read_one_after_the_other(
            segments in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..6),
        ) {
            let text: String = segments.iter().map(|segment| BASE64_STANDARD.encode(segment)).collect();
            prop_assert_eq!(decoded(&text), Ok(segments.concat()));
        }
    }
}
