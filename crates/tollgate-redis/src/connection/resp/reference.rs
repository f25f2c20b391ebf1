//! The reader against that of redis-rs: what both read, they read alike. The property tests and the fuzz target share it.

use redis::{Value as Theirs, parse_redis_value};

use crate::connection::{
    resp::decoder::{Decoder, Reply},
    value::Value,
};

#[cfg(test)]
mod tests;

/// Reads the beginning of `bytes` with both.
///
/// # Errors
///
/// In what they differ.
pub(in crate::connection) fn compare(bytes: &[u8]) -> Result<(), String> {
    let text = || bytes.escape_ascii();
    match ours(bytes) {
        Ok(Some((value, length))) => {
            let theirs = parse_redis_value(&bytes[..length]).ok();
            let (value, theirs) = (
                value.map(shown),
                theirs.map(|it| in_our_words(it).map(shown)),
            );
            if theirs.as_ref().is_some_and(|theirs| *theirs != value) {
                return Err(format!("{value:?} is {theirs:?} for redis-rs: {}", text()));
            }
            // The rest would be taken for the next reply by the one that stops earlier.
            if parse_redis_value(&bytes[..length - 1]).is_ok() {
                return Err(format!("redis-rs ends before byte {length}: {}", text()));
            }
        }
        Ok(None) if parse_redis_value(bytes).is_ok() => {
            return Err(format!(
                "it waits for more, and redis-rs does not: {}",
                text()
            ));
        }
        Ok(None) | Err(_) => {}
    }
    Ok(())
}

/// What redis-rs reads, in the words of this crate; `None` if it is a push.
fn in_our_words(theirs: Theirs) -> Option<Value> {
    let list = |values: Vec<Theirs>| values.into_iter().map(nested).collect();
    Some(match theirs {
        Theirs::Nil => Value::Nil,
        Theirs::Int(integer) => Value::Integer(integer),
        Theirs::BulkString(bytes) | Theirs::BigNumber(bytes) => Value::Text(bytes),
        Theirs::Okay => Value::Text(b"OK".into()),
        Theirs::SimpleString(text) | Theirs::VerbatimString { text, .. } => {
            Value::Text(text.into())
        }
        Theirs::Double(number) => Value::Text(number.to_string().into()),
        Theirs::Boolean(boolean) => Value::Integer(boolean.into()),
        Theirs::Array(values) | Theirs::Set(values) => Value::List(list(values)),
        Theirs::Map(pairs) => Value::List(list(flat(pairs))),
        Theirs::Push { .. } => return None,
        Theirs::ServerError(error) => Value::Error(match error.details() {
            Some(details) => format!("{} {details}", error.code()).replace(['\r', '\n'], " "),
            None => error.code().replace(['\r', '\n'], " "),
        }),
        other => panic!("{other:?} is new"),
    })
}

fn flat(pairs: Vec<(Theirs, Theirs)>) -> Vec<Theirs> {
    pairs
        .into_iter()
        .flat_map(|(key, value)| [key, value])
        .collect()
}

/// A push inside of a reply, which no server sends, is a list here.
fn nested(theirs: Theirs) -> Value {
    match theirs {
        Theirs::Push { kind, data } if kind.to_string().is_empty() && data.is_empty() => {
            Value::List(Vec::new())
        }
        Theirs::Push { kind, data } => {
            let kind = Value::Text(kind.to_string().into());
            Value::List(
                [kind]
                    .into_iter()
                    .chain(data.into_iter().map(nested))
                    .collect(),
            )
        }
        other => in_our_words(other).unwrap_or(Value::Nil),
    }
}

/// What this crate reads, with doubles as redis-rs writes them and integers in a row as a list; `None` if it is a push.
fn plain(reply: Reply<'_>) -> Option<Value> {
    match reply {
        Reply::Push => None,
        Reply::Error(line) => Some(Value::Error(line)),
        other => other.into_value().map(|value| match value {
            Value::Integers(integers) => {
                Value::List(integers.into_iter().map(Value::Integer).collect())
            }
            other => other,
        }),
    }
}

fn ours(bytes: &[u8]) -> Result<Option<(Option<Value>, usize)>, &'static str> {
    let mut decoder = Decoder::default();
    let read = decoder
        .decode(bytes)
        .map_err(|malformed| malformed.what())?;
    Ok(read.map(|(reply, length)| (plain(reply), length)))
}

/// Texts as redis-rs shows them: a number in one form, and what is no UTF-8 replaced. This crate keeps what was sent.
fn shown(value: Value) -> Value {
    match value {
        Value::Text(text) => {
            let text = String::from_utf8_lossy(&text);
            let number = text.trim().parse::<f64>().ok();
            Value::Text(
                number
                    .map_or(text.into_owned(), |number| number.to_string())
                    .into(),
            )
        }
        // Redis-rs has one value for a push of nothing and for one of an empty text, inside of a reply.
        Value::List(values) if values == [Value::Text(Vec::new())] => Value::List(Vec::new()),
        Value::List(values) => Value::List(values.into_iter().map(shown).collect()),
        other => other,
    }
}
