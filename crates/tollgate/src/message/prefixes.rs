//! Where messages begin in a stream of bytes (PROTOCOL-HTTP2 of gRPC, `Length-Prefixed-Message`).

/// The length of a prefix: a byte of flags, and four of length.
const PREFIX: u8 = 5;

/// The flag that says of a frame in gRPC-Web that it holds the trailers.
const TRAILERS: u8 = 0x80;

/// The place in a stream of messages, wherever its data is cut.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prefixes {
    /// Bytes of the prefix that were seen; a whole prefix while inside of a message.
    seen: u8,
    /// The flags of the last prefix.
    flags: u8,
    /// The length in the prefix as far as it was seen, then what is left of the message.
    left: u32,
}

impl Prefixes {
    /// Whether the next byte completes a prefix.
    pub(super) fn is_before_message(self) -> bool {
        self.seen == PREFIX - 1
    }

    /// Whether a message has ended here, or none has begun.
    pub(super) fn is_between(self) -> bool {
        self.seen == 0
    }

    /// Whether the last frame that has begun is the one with the trailers.
    pub(super) fn has_trailers(self) -> bool {
        self.flags & TRAILERS != 0
    }

    /// Goes past one byte.
    pub(super) fn pass(&mut self, byte: u8) {
        match self.seen {
            PREFIX => self.left -= 1,
            0 => {
                self.flags = byte;
                self.left = 0;
                self.seen = 1;
            }
            // The four bytes of the length shift the zeros of the beginning out.
            _ => {
                self.left = self.left << 8 | u32::from(byte);
                self.seen += 1;
            }
        }
        self.end_message();
    }

    /// Goes past those of `bytes` that belong to the message here. How many they are; 0 in a prefix.
    pub(super) fn skip(&mut self, bytes: usize) -> usize {
        if self.seen != PREFIX {
            return 0;
        }
        // What does not fit is more than is left.
        let skipped = u32::try_from(bytes).map_or(self.left, |bytes| bytes.min(self.left));
        self.left -= skipped;
        self.end_message();
        skipped as usize
    }

    /// A whole prefix with nothing left of its message is the end of it; an empty message ends with its prefix.
    fn end_message(&mut self) {
        if self.seen == PREFIX && self.left == 0 {
            self.seen = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(bytes: &[u8]) -> Prefixes {
        let mut prefixes = Prefixes::default();
        for byte in bytes {
            prefixes.pass(*byte);
        }
        prefixes
    }

    #[test]
    fn an_empty_message_is_its_prefix() {
        assert!(after(&[0, 0, 0, 0]).is_before_message());
        assert!(after(&[0, 0, 0, 0, 0]).is_between());
    }

    #[test]
    fn the_length_is_big_endian() {
        let mut prefixes = after(&[1, 0, 0, 1, 2]);
        assert_eq!(prefixes.skip(usize::MAX), 258);
        assert!(prefixes.is_between());
    }

    #[test]
    fn the_longest_message_is_passed_over() {
        let mut prefixes = after(&[0, 255, 255, 255, 255]);
        assert_eq!(prefixes.skip(1 << 31), 1 << 31);
        assert!(!prefixes.is_between());
        assert_eq!(prefixes.skip(usize::MAX), (1 << 31) - 1);
        assert!(prefixes.is_between());
    }

    #[test]
    fn trailers_are_known_by_their_flag() {
        assert!(!after(&[1]).has_trailers());
        assert!(after(&[0x80, 0, 0, 0, 3]).has_trailers());
    }
}
