//! Many byte strings in one piece of memory.

use smallvec::SmallVec;

/// Bytes; those of a usual key, or of a usual check, without an allocation.
pub(crate) type Bytes = SmallVec<[u8; 96]>;

/// Byte strings, one behind the other.
#[derive(Clone, Default)]
pub(crate) struct Packed {
    pub(crate) bytes: Bytes,
    pub(crate) ends: SmallVec<[usize; 4]>,
}

impl Packed {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn end(&mut self) {
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.ends.iter().enumerate().map(|(place, end)| {
            let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
            &self.bytes[start..*end]
        })
    }
}
