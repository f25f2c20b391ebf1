//! What waits to be written, with a number for each of it.

/// Rows that are written next, and their numbers. A row keeps its number until the database has said that it is there: after an unknown
/// outcome it is sent again, and found.
pub(crate) struct Outbox<T> {
    /// Of this process, by chance.
    pub(crate) writer: i64,
    /// The number of the first row.
    pub(crate) first: i64,
    pub(crate) waiting: Vec<T>,
}

impl<T> Default for Outbox<T> {
    fn default() -> Self {
        Self {
            writer: fastrand::i64(1..),
            first: 0,
            waiting: Vec::new(),
        }
    }
}

impl<T> Outbox<T> {
    /// The first rows are written.
    pub(crate) fn sent(&mut self, rows: usize) {
        self.waiting.drain(..rows);
        self.first += rows as i64;
    }
}
