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
