//! One answer for the calls that travelled together, taken apart.

use std::slice::ChunksExact;

use crate::connection::{
    error::{CallError, CallErrorKind},
    value::{Integers, Value},
};

/// The numbers that the script returns for each check.
const NUMBERS: usize = 3;

/// What the script answered: the time, and then what it says to each check, in order.
#[derive(Debug)]
pub(super) struct Replies<'a> {
    time: i64,
    numbers: ChunksExact<'a, i64>,
}

impl<'a> Replies<'a> {
    /// The answer to as many checks. `None` if it is none: another script has run.
    pub(super) fn new(integers: &'a [i64], checks: usize) -> Option<Self> {
        let (time, numbers) = integers.split_first()?;
        (numbers.len() == NUMBERS * checks).then(|| Self {
            time: *time,
            numbers: numbers.chunks_exact(NUMBERS),
        })
    }

    /// What a call of its own would have been answered to the next checks.
    pub(super) fn next(&mut self, checks: usize) -> Value {
        let mut integers = Integers::with_capacity(1 + NUMBERS * checks);
        integers.push(self.time);
        for numbers in self.numbers.by_ref().take(checks) {
            integers.extend_from_slice(numbers);
        }
        Value::Integers(integers)
    }
}

/// The error of calls whose reply cannot be taken apart.
pub(super) fn not_ours() -> CallError {
    CallError::new(
        CallErrorKind::Unknown,
        "Redis answered a call with something else than the script does",
    )
}
