//! One answer for the calls that travelled together, taken apart.

use std::vec;

use redis::Value;

use crate::connection::error::{CallError, CallErrorKind};

/// The numbers that the script returns for each check.
const NUMBERS: usize = 3;

/// What the script answered: the time, and then what it says to each check, in order.
#[derive(Debug)]
pub(super) struct Answers {
    time: Value,
    numbers: vec::IntoIter<Value>,
}

impl Answers {
    /// The answer to as many checks. `None` if it is none: another script has run.
    pub(super) fn new(value: Value, checks: usize) -> Option<Self> {
        let Value::Array(numbers) = value else {
            return None;
        };
        if numbers.len() != 1 + NUMBERS * checks {
            return None;
        }
        let mut numbers = numbers.into_iter();
        let time = numbers.next()?;
        Some(Self { time, numbers })
    }

    /// What a call of its own would have been answered to the next checks.
    pub(super) fn next(&mut self, checks: usize) -> Value {
        let mut numbers = Vec::with_capacity(1 + NUMBERS * checks);
        numbers.push(self.time.clone());
        numbers.extend(self.numbers.by_ref().take(NUMBERS * checks));
        Value::Array(numbers)
    }
}

/// What calls are told whose answer cannot be taken apart.
pub(super) fn not_ours() -> CallError {
    CallError::new(
        CallErrorKind::Unknown,
        "Redis answered a call with something else than the script does",
    )
}
