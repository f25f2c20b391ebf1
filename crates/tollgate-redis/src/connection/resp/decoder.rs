//! Replies out of bytes.

use crate::connection::{
    resp::reader::{LONGEST, Malformed, Reader, Stop},
    value::Value,
};

#[cfg(test)]
mod tests;

/// What a server sent.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::connection) enum Reply<'a> {
    /// A list of integers, one at least: what the script answers.
    Integers(&'a [i64]),
    /// Another answer.
    Value(Value),
    /// An error, without its mark.
    Error(String),
}

impl Reply<'_> {
    /// The answer, if it is one.
    pub(in crate::connection) fn into_value(self) -> Option<Value> {
        match self {
            Self::Integers(integers) => Some(Value::Integers(integers.into())),
            Self::Value(value) => Some(value),
            Self::Error(_) => None,
        }
    }
}

/// Reads reply after reply, and keeps the memory for integers.
#[derive(Debug, Default)]
pub(in crate::connection) struct Decoder {
    integers: Vec<i64>,
}

impl Decoder {
    /// The first reply in `bytes` and its length in bytes; `None` if it is not all there yet.
    pub(in crate::connection) fn decode(
        &mut self,
        bytes: &[u8],
    ) -> Result<Option<(Reply<'_>, usize)>, Malformed> {
        let mut reader = Reader::new(bytes);
        match reader.integers(&mut self.integers) {
            Ok(true) => return Ok(Some((Reply::Integers(&self.integers), reader.at()))),
            Ok(false) => {}
            Err(stop) => return unfinished(stop, bytes),
        }
        let mut reader = Reader::new(bytes);
        match reader.value() {
            Ok(Value::Error(line)) => Ok(Some((Reply::Error(line), reader.at()))),
            Ok(value) => Ok(Some((Reply::Value(value), reader.at()))),
            Err(stop) => unfinished(stop, bytes),
        }
    }
}

fn unfinished<T>(stop: Stop, bytes: &[u8]) -> Result<Option<T>, Malformed> {
    match stop {
        Stop::Short if bytes.len() > LONGEST => Err(Malformed("a reply is longer than 16 MiB")),
        Stop::Short => Ok(None),
        Stop::Malformed(malformed) => Err(malformed),
    }
}
