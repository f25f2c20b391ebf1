//! Many byte strings in one allocation.

/// Byte strings, one behind the other.
#[derive(Clone, Default)]
pub(crate) struct Packed {
    pub(crate) bytes: Vec<u8>,
    pub(crate) ends: Vec<usize>,
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
