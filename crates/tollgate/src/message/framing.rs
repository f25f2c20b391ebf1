//! How messages are cut out of data frames.

use crate::{
    message::{
        prefixes::Prefixes,
        quads::{NotBase64, Quads},
    },
    protocol::Spoken,
};

/// The place in a body of messages.
#[derive(Clone, Copy, Debug)]
pub(super) enum Framing {
    Binary(Prefixes),
    Text(Prefixes, Quads),
}

/// How far a frame may be handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    /// In bytes, or in characters.
    pub(super) length: usize,
    /// Messages whose prefixes end within.
    pub(super) messages: u64,
}

impl Framing {
    pub(super) fn new(spoken: Spoken) -> Self {
        match spoken {
            Spoken::GrpcWeb { text: true } => Self::Text(Prefixes::default(), Quads::default()),
            _ => Self::Binary(Prefixes::default()),
        }
    }

    pub(super) fn is_text(self) -> bool {
        matches!(self, Self::Text(..))
    }

    /// Whether a message has ended here, or none has begun.
    pub(super) fn is_between(self) -> bool {
        match self {
            Self::Binary(prefixes) => prefixes.is_between(),
            Self::Text(prefixes, quads) => prefixes.is_between() && quads.is_between(),
        }
    }

    /// Whether the last frame that has begun is the one with the trailers of gRPC-Web.
    pub(super) fn has_trailers(self) -> bool {
        let (Self::Binary(prefixes) | Self::Text(prefixes, _)) = self;
        prefixes.has_trailers()
    }

    /// Goes over a frame up to its end, or to where one message more than `most` would have its whole prefix within. In
    /// text no quad is torn.
    ///
    /// What is handed on before a message is paid for is at most four bytes of its prefix, and the message before it is
    /// whole.
    pub(super) fn advance(&mut self, frame: &[u8], most: u64) -> Result<Reach, NotBase64> {
        match self {
            Self::Binary(prefixes) => Ok(advance(prefixes, frame, most)),
            Self::Text(prefixes, quads) => advance_text(prefixes, quads, frame, most),
        }
    }
}

fn advance(prefixes: &mut Prefixes, frame: &[u8], most: u64) -> Reach {
    let mut reach = Reach {
        length: 0,
        messages: 0,
    };
    while let Some(byte) = frame.get(reach.length) {
        let skipped = prefixes.skip(frame.len() - reach.length);
        if skipped > 0 {
            reach.length += skipped;
            continue;
        }
        if prefixes.is_before_message() {
            if reach.messages == most {
                break;
            }
            reach.messages += 1;
        }
        prefixes.pass(*byte);
        reach.length += 1;
    }
    reach
}

fn advance_text(
    prefixes: &mut Prefixes,
    quads: &mut Quads,
    frame: &[u8],
    most: u64,
) -> Result<Reach, NotBase64> {
    // The place up to which whole quads were passed.
    let mut whole = (*prefixes, *quads, 0);
    let mut messages = 0;
    for (place, character) in frame.iter().enumerate() {
        if quads.is_between() {
            whole = (*prefixes, *quads, place);
        }
        if let Some(byte) = quads.pass(*character)? {
            if prefixes.is_before_message() {
                if messages == most {
                    let length;
                    (*prefixes, *quads, length) = whole;
                    return Ok(Reach { length, messages });
                }
                messages += 1;
            }
            prefixes.pass(byte);
        }
    }
    Ok(Reach {
        length: frame.len(),
        messages,
    })
}

#[cfg(test)]
mod tests {
    use base64::{Engine, prelude::BASE64_STANDARD};
    use proptest::{prelude::*, sample::Index};

    use super::*;

    const ALL: u64 = u64::MAX;

    fn message(length: usize) -> Vec<u8> {
        let mut message = vec![0];
        message.extend((length as u32).to_be_bytes());
        message.resize(5 + length, 0xa5);
        message
    }

    fn binary() -> Framing {
        Framing::new(Spoken::Grpc)
    }

    fn text() -> Framing {
        Framing::new(Spoken::GrpcWeb { text: true })
    }

    fn cut<'a>(bytes: &'a [u8], at: &[Index]) -> Vec<&'a [u8]> {
        let mut places: Vec<_> = at.iter().map(|at| at.index(bytes.len() + 1)).collect();
        places.extend([0, bytes.len()]);
        places.sort_unstable();
        let pairs = places.windows(2);
        pairs.map(|pair| &bytes[pair[0]..pair[1]]).collect()
    }

    fn count(mut framing: Framing, frames: &[&[u8]]) -> u64 {
        let reaches = frames
            .iter()
            .map(|frame| framing.advance(frame, ALL).expect("it is base64"));
        reaches.map(|reach| reach.messages).sum()
    }

    /// Base64 in segments, as a client that encodes each frame by itself sends it.
    fn segments(frames: &[&[u8]]) -> String {
        let encode = |frame: &&[u8]| BASE64_STANDARD.encode(frame);
        frames.iter().map(encode).collect()
    }

    #[test]
    fn a_frame_is_cut_before_the_prefix_that_is_not_paid_for() {
        let frame = [message(3), message(0), message(2)].concat();
        for (most, length, messages) in [(0, 4, 0), (1, 12, 1), (2, 17, 2), (3, 20, 3)] {
            let mut framing = binary();
            let reach = framing.advance(&frame, most);
            assert_eq!(reach, Ok(Reach { length, messages }), "{most}");
        }
    }

    #[test]
    fn text_is_cut_between_quads() {
        // 8 bytes, 5 bytes: the second prefix ends in the fifth quad.
        let frame = BASE64_STANDARD.encode([message(3), message(0)].concat());
        let mut framing = text();
        let reach = framing.advance(frame.as_bytes(), 1);
        assert_eq!(
            (frame.len(), reach),
            (
                20,
                Ok(Reach {
                    length: 16,
                    messages: 1
                })
            )
        );
        let rest = framing.advance(&frame.as_bytes()[16..], 1);
        assert_eq!(
            rest,
            Ok(Reach {
                length: 4,
                messages: 1
            })
        );
        assert!(framing.is_between());
    }

    #[test]
    fn a_quad_that_is_not_base64_is_told() {
        assert_eq!(text().advance(b"AAA\n", ALL), Err(NotBase64));
    }

    proptest! {
        #[test]
        fn any_cut_of_any_messages_gives_the_same_count(
            lengths in prop::collection::vec(0..40_usize, 0..12), at: Vec<Index>, segment_at: Vec<Index>,
        ) {
            let bytes: Vec<u8> = lengths.iter().flat_map(|length| message(*length)).collect();
            prop_assert_eq!(count(binary(), &cut(&bytes, &at)), lengths.len() as u64);
            let encoded = segments(&cut(&bytes, &segment_at));
            prop_assert_eq!(count(text(), &cut(encoded.as_bytes(), &at)), lengths.len() as u64);
        }

        #[test]
        fn messages_that_are_paid_for_are_handed_on_whole_and_no_others(
            lengths in prop::collection::vec(0..40_usize, 1..12), paid in 0..12_u64, at: Vec<Index>, as_text: bool,
        ) {
            let bytes: Vec<u8> = lengths.iter().flat_map(|length| message(*length)).collect();
            let (mut framing, bytes) = match as_text {
                true => (text(), segments(&cut(&bytes, &at)).into_bytes()),
                false => (binary(), bytes),
            };
            let mut handed = Vec::new();
            let mut messages = 0;
            for frame in cut(&bytes, &at) {
                let reach = framing.advance(frame, paid - messages).expect("it is base64");
                messages += reach.messages;
                handed.extend_from_slice(&frame[..reach.length]);
                if reach.length < frame.len() {
                    break;
                }
            }
            let paid = lengths.len().min(paid as usize);
            prop_assert_eq!(messages, paid as u64);
            let whole: usize = lengths[..paid].iter().map(|length| 5 + length).sum();
            let handed = match as_text {
                // A frame may have been cut inside of a quad.
                true => {
                    let quads = handed.chunks_exact(4);
                    quads.flat_map(|quad| BASE64_STANDARD.decode(quad).expect("a quad")).collect()
                }
                false => handed,
            };
            prop_assert!((whole..whole + 5).contains(&handed.len()), "{} of {whole}", handed.len());
        }

        #[test]
        fn arbitrary_bytes_are_taken(frames: Vec<Vec<u8>>, most: u64, as_text: bool) {
            let mut framing = if as_text { text() } else { binary() };
            for frame in frames {
                if let Ok(reach) = framing.advance(&frame, most) {
                    prop_assert!(reach.length <= frame.len() && reach.messages <= most);
                }
            }
        }
    }
}
