//! The text of a field while it is written.

use std::ops::Deref;

/// Room for a field of a few policies without the heap.
const INLINE: usize = 192;

/// The text of a field while it is written: on the stack for a few policies.
///
/// An array of our own: with `SmallVec` each piece takes a call that may grow it.
#[derive(Debug)]
pub(super) struct Line {
    inline: [u8; INLINE],
    /// The number of bytes in `inline`, where `spilled` is empty.
    len: usize,
    /// All of it once it does not fit any more.
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
        if end <= INLINE && self.spilled.is_empty() {
            self.inline[self.len..end].copy_from_slice(piece);
            self.len = end;
        } else {
            self.push_spilled(piece);
        }
    }

    #[cold]
    fn push_spilled(&mut self, piece: &[u8]) {
        if self.spilled.is_empty() {
            self.spilled.extend_from_slice(&self.inline[..self.len]);
        }
        self.spilled.extend_from_slice(piece);
    }
}

impl Deref for Line {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        if self.spilled.is_empty() {
            &self.inline[..self.len]
        } else {
            &self.spilled
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_holds_what_was_pushed_whatever_its_length() {
        for pieces in [0, 1, INLINE / 7, INLINE / 7 + 1, INLINE] {
            let mut line = Line::new();
            for _ in 0..pieces {
                line.push(b"seven, ");
            }
            assert_eq!(*line, *b"seven, ".repeat(pieces), "{pieces} pieces");
            assert_eq!(line.is_empty(), pieces == 0);
        }
        // Nothing is lost where the first piece is too long, nor where an empty one follows.
        let mut line = Line::new();
        line.push(&[b'a'; INLINE + 1]);
        line.push(b"");
        line.push(b"b");
        assert_eq!(line.len(), INLINE + 2);
        assert_eq!(line.last(), Some(&b'b'));
    }
}
