//! The framing of messages in a stream of bytes (PROTOCOL-HTTP2 of gRPC, `Length-Prefixed-Message`).

/// The length of a prefix: a byte of flags, and four of length.
const PREFIX: u8 = 5;

/// The position in a stream of messages, wherever its data is split into frames.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Framing {
    /// The bytes of the prefix that were seen; a whole prefix while inside of a message.
    seen: u8,
    /// The length in the prefix as far as it was seen, then the rest of the message.
    left: u32,
}

/// How much of a frame may be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    /// In bytes.
    pub(super) length: usize,
    /// The number of messages whose prefixes end within.
    pub(super) messages: u64,
}

impl Framing {
    /// Whether a message has begun, and its end was not seen.
    pub(super) fn is_inside(&self) -> bool {
        self.seen == PREFIX
    }

    /// Advances to the end of a frame, or to the byte that would complete the prefix of one message more than `most`.
    ///
    /// So of a message that is not granted yet, at most four bytes of its prefix are passed on.
    pub(super) fn advance(&mut self, frame: &[u8], most: u64) -> Progress {
        let mut progress = Progress {
            length: 0,
            messages: 0,
        };
        while let Some(byte) = frame.get(progress.length) {
            if self.is_inside() {
                // A number that does not fit is larger than the rest of the message.
                let rest = u32::try_from(frame.len() - progress.length).unwrap_or(u32::MAX);
                let skipped = rest.min(self.left);
                self.left -= skipped;
                progress.length += skipped as usize;
            } else {
                if self.seen == PREFIX - 1 {
                    if progress.messages == most {
                        break;
                    }
                    progress.messages += 1;
                }
                // The flags do not matter, and are shifted out.
                self.left = self.left << 8 | u32::from(*byte);
                self.seen += 1;
                progress.length += 1;
            }
            // An empty message ends with its prefix.
            if self.is_inside() && self.left == 0 {
                self.seen = 0;
            }
        }
        progress
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, sample::Index};

    use super::*;

    const ALL: u64 = u64::MAX;

    fn message(length: usize) -> Vec<u8> {
        let mut message = vec![0];
        message.extend((length as u32).to_be_bytes());
        message.resize(5 + length, 0xa5);
        message
    }

    fn split<'a>(bytes: &'a [u8], at: &[Index]) -> Vec<&'a [u8]> {
        let mut places: Vec<_> = at.iter().map(|at| at.index(bytes.len() + 1)).collect();
        places.extend([0, bytes.len()]);
        places.sort_unstable();
        let pairs = places.windows(2);
        pairs.map(|pair| &bytes[pair[0]..pair[1]]).collect()
    }

    #[test]
    fn the_longest_message_is_skipped() {
        let mut framing = Framing::default();
        framing.advance(&[1, 255, 255, 255, 255], ALL);
        assert_eq!(framing.left, u32::MAX);
        let kilobyte = [0; 1 << 10];
        for _ in 0..(1_u32 << 22) - 1 {
            framing.advance(&kilobyte, ALL);
        }
        assert_eq!((framing.seen, framing.left), (PREFIX, 1_023));
        framing.advance(&kilobyte, ALL);
        assert_eq!(framing.seen, 1);
    }

    proptest! {
        #[test]
        fn any_split_of_any_messages_gives_the_same_count(
            lengths in prop::collection::vec(0..40_usize, 0..12), at: Vec<Index>,
        ) {
            let bytes: Vec<u8> = lengths.iter().flat_map(|length| message(*length)).collect();
            let mut framing = Framing::default();
            let frames = split(&bytes, &at);
            let count: u64 = frames.iter().map(|frame| framing.advance(frame, ALL).messages).sum();
            prop_assert_eq!(count, lengths.len() as u64);
        }

        #[test]
        fn arbitrary_bytes_are_accepted(frames: Vec<Vec<u8>>, most: u64) {
            let mut framing = Framing::default();
            for frame in frames {
                let progress = framing.advance(&frame, most);
                prop_assert!(progress.length <= frame.len() && progress.messages <= most);
            }
        }
    }
}
