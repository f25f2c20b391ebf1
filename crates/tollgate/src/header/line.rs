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
