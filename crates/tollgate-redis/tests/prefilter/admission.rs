//! What was admitted, as the processes write it down.

use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    path::Path,
};

/// A unit that one process was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admission {
    /// Before it was asked for, in µs.
    pub(crate) earliest: u64,
    /// After it was answered.
    pub(crate) latest: u64,
}

const BYTES: usize = 16;

/// What processes append to, each record in one piece. It stays whole when one of them is killed.
#[derive(Debug)]
pub(crate) struct Book(File);

impl Book {
    pub(crate) fn open(path: &Path) -> Self {
        let book = OpenOptions::new().append(true).open(path);
        Self(book.expect("the book is there"))
    }

    pub(crate) fn write(&mut self, admission: Admission) {
        let words = [admission.earliest, admission.latest].map(u64::to_ne_bytes);
        let written = self.0.write_all(words.as_flattened());
        written.expect("the book is written");
    }
}

/// Whether every record in the book is whole. While somebody writes the last one may not be.
pub(crate) fn is_whole(path: &Path) -> bool {
    let book = fs::metadata(path).expect("the book is there");
    book.len().is_multiple_of(BYTES as u64)
}

/// All whole records in the book.
pub(crate) fn read(path: &Path) -> Vec<Admission> {
    let bytes = fs::read(path).expect("the book is there");
    let (words, _) = bytes.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    let (records, _) = words.as_chunks::<2>();
    let records = records.iter();
    records
        .map(|[earliest, latest]| Admission {
            earliest: *earliest,
            latest: *latest,
        })
        .collect()
}
