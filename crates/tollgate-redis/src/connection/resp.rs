//! Reading the Redis protocol, versions 2 and 3, as far as a limiter meets it.

use redis::Value;

/// What a server sent.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    /// An answer.
    Value(Value),
    /// An error, without its leading `-`.
    Error(String),
    /// Something that nobody asked for.
    Push,
}

/// Bytes that are no reply. The connection cannot be read any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed(&'static str);

impl Malformed {
    pub(super) fn what(self) -> &'static str {
        self.0
    }
}

// Replies of a limiter are a few hundred bytes in two levels. What goes far beyond is no server of ours.
const LONGEST: usize = 16 << 20;
const DEEPEST: u8 = 16;

/// The first reply in `bytes` and its length in bytes; `None` if it is not all there yet.
pub(super) fn decode(bytes: &[u8]) -> Result<Option<(Reply, usize)>, Malformed> {
    let mut reader = Reader { bytes, at: 0 };
    let reply = match bytes.first() {
        Some(b'-') => match reader.line() {
            Ok(line) => Ok(Reply::Error(
                String::from_utf8_lossy(&line[1..]).into_owned(),
            )),
            Err(stop) => Err(stop),
        },
        Some(b'>') => reader.value(0).map(|_| Reply::Push),
        _ => reader.value(0).map(|value| match value {
            Value::ServerError(error) => Reply::Error(match error.details() {
                Some(details) => format!("{} {details}", error.code()),
                None => error.code().to_owned(),
            }),
            value => Reply::Value(value),
        }),
    };
    match reply {
        Ok(reply) => Ok(Some((reply, reader.at))),
        Err(Stop::Short) if bytes.len() > LONGEST => {
            Err(Malformed("a reply is longer than 16 MiB"))
        }
        Err(Stop::Short) => Ok(None),
        Err(Stop::Malformed(malformed)) => Err(malformed),
    }
}

enum Stop {
    Short,
    Malformed(Malformed),
}

fn malformed<T>(what: &'static str) -> Result<T, Stop> {
    Err(Stop::Malformed(Malformed(what)))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// The next line with its mark, without its end.
    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = &self.bytes[self.at..];
        match rest.iter().position(|byte| *byte == b'\r') {
            Some(end) => match rest.get(end + 1) {
                Some(b'\n') if end > 0 => {
                    self.at += end + 2;
                    Ok(&rest[..end])
                }
                Some(_) => malformed("a line does not end with CR LF"),
                None => Err(Stop::Short),
            },
            None => Err(Stop::Short),
        }
    }

    fn bulk(&mut self, length: usize) -> Result<&'a [u8], Stop> {
        if length > LONGEST {
            return malformed("a string is longer than 16 MiB");
        }
        let rest = &self.bytes[self.at..];
        if rest.len() < length + 2 {
            return Err(Stop::Short);
        }
        if &rest[length..length + 2] != b"\r\n" {
            return malformed("a string does not end where it says");
        }
        self.at += length + 2;
        Ok(&rest[..length])
    }

    fn values(&mut self, count: usize, depth: u8) -> Result<Vec<Value>, Stop> {
        // An element has three bytes at least, so that a count alone reserves nothing.
        let mut values = Vec::with_capacity(count.min((self.bytes.len() - self.at) / 3));
        for _ in 0..count {
            values.push(self.value(depth + 1)?);
        }
        Ok(values)
    }

    fn pairs(&mut self, count: usize, depth: u8) -> Result<Vec<(Value, Value)>, Stop> {
        let mut pairs = Vec::with_capacity(count.min((self.bytes.len() - self.at) / 6));
        for _ in 0..count {
            pairs.push((self.value(depth + 1)?, self.value(depth + 1)?));
        }
        Ok(pairs)
    }

    fn value(&mut self, depth: u8) -> Result<Value, Stop> {
        if depth > DEEPEST {
            return malformed("a reply is nested deeper than 16 levels");
        }
        let line = self.line()?;
        let (mark, text) = (line[0], &line[1..]);
        Ok(match mark {
            b':' => Value::Int(number(text)?),
            b'+' if text == b"OK" => Value::Okay,
            b'+' => Value::SimpleString(String::from_utf8_lossy(text).into_owned()),
            b'$' => match length(text)? {
                Some(length) => Value::BulkString(self.bulk(length)?.to_vec()),
                None => Value::Nil,
            },
            b'*' => match length(text)? {
                Some(count) => Value::Array(self.values(count, depth)?),
                None => Value::Nil,
            },
            b'~' => Value::Set(self.values(length(text)?.unwrap_or(0), depth)?),
            b'%' => Value::Map(self.pairs(length(text)?.unwrap_or(0), depth)?),
            b'>' => {
                self.values(length(text)?.unwrap_or(0), depth)?;
                Value::Nil
            }
            // Says something about the value that follows, which is the answer.
            b'|' => {
                self.pairs(length(text)?.unwrap_or(0), depth)?;
                self.value(depth + 1)?
            }
            b'_' => Value::Nil,
            b'#' => Value::Boolean(text == b"t"),
            b',' => match str::from_utf8(text).ok().and_then(|text| text.parse().ok()) {
                Some(number) => Value::Double(number),
                None => return malformed("a double is no number"),
            },
            b'(' => Value::BigNumber(text.to_vec()),
            b'=' | b'!' => {
                let text = self.bulk(length(text)?.unwrap_or(0))?;
                match mark {
                    b'!' => error(text)?,
                    // Four bytes of format come first.
                    _ => Value::BulkString(text.get(4..).unwrap_or_default().to_vec()),
                }
            }
            b'-' => error(text)?,
            _ => return malformed("a reply begins with no known mark"),
        })
    }
}

fn number(text: &[u8]) -> Result<i64, Stop> {
    match str::from_utf8(text).ok().and_then(|text| text.parse().ok()) {
        Some(number) => Ok(number),
        None => malformed("an integer is no number"),
    }
}

/// A length, or `None` for -1.
fn length(text: &[u8]) -> Result<Option<usize>, Stop> {
    match number(text)? {
        -1 => Ok(None),
        length => match usize::try_from(length) {
            Ok(length) => Ok(Some(length)),
            Err(_) => malformed("a length is negative"),
        },
    }
}

/// An error within an answer. Only redis-rs can make its type.
fn error(text: &[u8]) -> Result<Value, Stop> {
    let text: Vec<u8> = text
        .iter()
        .map(|byte| {
            if matches!(byte, b'\r' | b'\n') {
                b' '
            } else {
                *byte
            }
        })
        .collect();
    let line = [b"-", String::from_utf8_lossy(&text).as_bytes(), b"\r\n"].concat();
    redis::parse_redis_value(&line).or_else(|_| malformed("an error is not readable"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(bytes: &[u8]) -> Value {
        match decode(bytes) {
            Ok(Some((Reply::Value(value), length))) if length == bytes.len() => value,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_kind_of_reply_is_read() {
        assert_eq!(value(b":-3\r\n"), Value::Int(-3));
        assert_eq!(value(b"+OK\r\n"), Value::Okay);
        assert_eq!(
            value(b"$3\r\na\r\n\r\n"),
            Value::BulkString(b"a\r\n".into())
        );
        assert_eq!(value(b"$-1\r\n"), Value::Nil);
        assert_eq!(value(b"_\r\n"), Value::Nil);
        assert_eq!(value(b",1.5\r\n"), Value::Double(1.5));
        assert_eq!(value(b"#t\r\n"), Value::Boolean(true));
        assert_eq!(value(b"=5\r\ntxt:a\r\n"), Value::BulkString(b"a".into()));
        assert_eq!(
            value(b"*2\r\n:1\r\n*1\r\n$1\r\na\r\n"),
            Value::Array(vec![
                Value::Int(1),
                Value::Array(vec![Value::BulkString(b"a".into())])
            ])
        );
        assert_eq!(
            value(b"%1\r\n+proto\r\n:3\r\n"),
            Value::Map(vec![(Value::SimpleString("proto".into()), Value::Int(3))])
        );
        assert_eq!(value(b"|1\r\n+a\r\n:1\r\n:7\r\n"), Value::Int(7));
    }

    #[test]
    fn errors_keep_their_text_also_inside_of_an_answer() {
        let (reply, _) = decode(b"-NOSCRIPT No matching script.\r\n")
            .unwrap()
            .unwrap();
        assert_eq!(reply, Reply::Error("NOSCRIPT No matching script.".into()));
        let (reply, _) = decode(b"!9\r\nOOM a\r\nbc\r\n").unwrap().unwrap();
        assert_eq!(reply, Reply::Error("OOM a  bc".into()));
        let Value::Array(items) = value(b"*2\r\n:1\r\n-WRONGTYPE no\r\n") else {
            panic!("not an array");
        };
        let Value::ServerError(error) = &items[1] else {
            panic!("{items:?}");
        };
        assert_eq!(error.code(), "WRONGTYPE");
    }

    #[test]
    fn a_push_is_told_apart() {
        let bytes = b">2\r\n+invalidate\r\n*-1\r\n:1\r\n";
        assert_eq!(decode(bytes), Ok(Some((Reply::Push, bytes.len() - 4))));
    }

    #[test]
    fn hostile_lengths_reserve_nothing_and_are_refused() {
        assert_eq!(decode(b"*999999999999\r\n"), Ok(None));
        assert!(decode(b"$999999999999\r\n").is_err());
        assert!(decode(b"$-7\r\n").is_err());
        assert!(decode(b"*1\r\n".repeat(40).as_slice()).is_err());
        assert!(decode(b"HTTP/1.1 400 Bad Request\r\n").is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(
            prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'*'), Just(b'$'), Just(b'1'), Just(b'-'), any::<u8>()], 0..64
        )) {
            let _ = decode(&bytes);
        }

        #[test]
        fn a_reply_in_pieces_is_read_when_the_last_piece_is_there(cut in 0_usize..40) {
            let whole = b"*3\r\n:1\r\n$5\r\nhello\r\n*1\r\n-ERR no\r\n+next";
            let length = whole.len() - 5;
            let cut = cut.min(length);
            let read = decode(&whole[..cut]).unwrap();
            prop_assert_eq!(read.is_some(), cut == length);
        }
    }
}
