//! The reader against that of redis-rs: what both read, they read alike. The property tests and the fuzz target share it.

use redis::{Value as Theirs, parse_redis_value};

use crate::connection::resp::{Value, decode};

#[cfg(test)]
mod tests;

/// Reads the beginning of `bytes` with both. What only redis-rs reads is of version 3.
///
/// # Errors
///
/// In what they differ.
pub(in crate::connection) fn compare(bytes: &[u8]) -> Result<(), String> {
    let text = || bytes.escape_ascii();
    match ours(bytes) {
        Ok(Some((value, length))) => {
            let theirs = parse_redis_value(&bytes[..length]).map(in_our_words);
            let value = shown(value);
            if theirs.as_ref().is_ok_and(|theirs| *theirs != value) {
                return Err(format!("{value:?} is {theirs:?} for redis-rs: {}", text()));
            }
            // The rest would be taken for the next reply by the one that stops earlier.
            if parse_redis_value(&bytes[..length - 1]).is_ok() {
                return Err(format!("redis-rs ends before byte {length}: {}", text()));
            }
        }
        Ok(None) if parse_redis_value(bytes).is_ok() => {
            let what = "it waits for more, and redis-rs does not";
            return Err(format!("{what}: {}", text()));
        }
        Ok(None) | Err(_) => {}
    }
    Ok(())
}

/// What redis-rs reads, in the words of this crate.
fn in_our_words(theirs: Theirs) -> Value {
    match theirs {
        Theirs::Nil => Value::Nil,
        Theirs::Int(integer) => Value::Integer(integer),
        Theirs::BulkString(bytes) => shown(Value::Text(bytes)),
        Theirs::Okay => Value::Text(b"OK".into()),
        Theirs::SimpleString(text) => Value::Text(text.into()),
        Theirs::Array(values) => Value::List(values.into_iter().map(in_our_words).collect()),
        Theirs::ServerError(error) => Value::Error(match error.details() {
            Some(details) => format!("{} {details}", error.code()).replace(['\r', '\n'], " "),
            None => error.code().replace(['\r', '\n'], " "),
        }),
        other => panic!("{other:?} is of version 3"),
    }
}

fn ours(bytes: &[u8]) -> Result<Option<(Value, usize)>, &'static str> {
    Ok(decode(bytes)?.map(|(value, length)| match value {
        Value::Integers(integers) => {
            let integers = integers.into_iter().map(Value::Integer);
            (Value::List(integers.collect()), length)
        }
        value => (value, length),
    }))
}

/// Texts as redis-rs shows them, what is no UTF-8 replaced. This crate keeps what was sent.
fn shown(value: Value) -> Value {
    match value {
        Value::Text(text) => Value::Text(String::from_utf8_lossy(&text).into_owned().into()),
        Value::List(values) => Value::List(values.into_iter().map(shown).collect()),
        other => other,
    }
}
