//! Some of the checks of a request.

/// Some of the checks of a request, by index. Those after the first 64 always count as being in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexSet(u64);

impl IndexSet {
    /// Puts an index in.
    pub fn insert(&mut self, index: usize) {
        if index < 64 {
            self.0 |= 1 << index;
        }
    }

    /// Whether an index is in it.
    #[must_use]
    pub fn contains(self, index: usize) -> bool {
        index >= 64 || self.0 >> index & 1 > 0
    }
}
