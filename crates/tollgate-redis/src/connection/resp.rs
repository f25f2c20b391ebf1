//! Reading the Redis protocol, version 2: every server and every proxy speaks it, and a limiter needs nothing of version 3.
//!
//! What a server says about lengths is believed when the bytes are there, and not before.

use smallvec::SmallVec;

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

/// Integers in a row. The answer to one check, a time and three numbers, needs no memory of its own.
pub(crate) type Integers = SmallVec<[i64; 4]>;

/// An answer, as far as a limiter tells answers apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// There is nothing.
    Nil,
    /// A number.
    Integer(i64),
    /// A list that is no part of another and has nothing but integers in it, one at least.
    Integers(Integers),
    /// Either kind of string.
    Text(Vec<u8>),
    /// Any other list.
    List(Vec<Self>),
    /// An error, without its mark.
    Error(String),
}

impl Value {
    /// The text, where it is one.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(bytes) => str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// The elements of a list that does not consist of integers.
    pub(crate) fn list(&self) -> Option<&[Self]> {
        match self {
            Self::List(values) => Some(values),
            _ => None,
        }
    }
}

/// The first reply in `bytes` and its length in bytes; `None` if it is not all there yet. An error of the server is a value too.
pub(super) fn decode(bytes: &[u8]) -> Result<Option<(Value, usize)>, &'static str> {
    let mut reader = Reader::new(bytes);
    let read = match reader.integers() {
        Ok(Some(integers)) => Ok(Value::Integers(integers)),
        Ok(None) => {
            reader = Reader::new(bytes);
            reader.nested(0)
        }
        Err(stop) => Err(stop),
    };
    match read {
        Ok(value) => Ok(Some((value, reader.at))),
        Err(Stop::Short) if bytes.len() > LONGEST => Err("a reply is longer than 16 MiB"),
        Err(Stop::Short) => Ok(None),
        Err(Stop::Malformed(why)) => Err(why),
    }
}

// Replies of a limiter are a few hundred bytes in two levels. What goes far beyond is no server of ours.
const LONGEST: usize = 16 << 20;
const DEEPEST: u8 = 16;

/// How many values a reply may have, in all its lists. A value takes more memory than it has bytes.
const MOST: usize = 1 << 20;

/// Why there is no reply.
#[derive(Clone, Copy)]
enum Stop {
    /// It is not all there yet.
    Short,
    /// The connection cannot be read any further.
    Malformed(&'static str),
}

fn malformed<T>(what: &'static str) -> Result<T, Stop> {
    Err(Stop::Malformed(what))
}

/// Reads one reply, from its first byte on.
struct Reader<'a> {
    bytes: &'a [u8],
    /// How many bytes were read.
    at: usize,
    /// How many values there may be yet.
    room: usize,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            room: MOST,
        }
    }

    /// Reads a list of integers, one at least. `None` if it is something else, which is to be read from its beginning.
    fn integers(&mut self) -> Result<Option<Integers>, Stop> {
        if self.bytes.first() != Some(&b'*') {
            return Ok(None);
        }
        let count = match length(&self.line()?[1..])? {
            None | Some(0) => return Ok(None),
            Some(count) => self.take(count)?,
        };
        let mut integers = Integers::with_capacity(self.room_for(count));
        for _ in 0..count {
            match self.bytes.get(self.at) {
                Some(b':') => integers.push(number(&self.line()?[1..])?),
                Some(_) => return Ok(None),
                None => return Err(Stop::Short),
            }
        }
        Ok(Some(integers))
    }

    /// An element has three bytes at least, so that a count alone reserves nothing.
    fn room_for(&self, count: usize) -> usize {
        count.min((self.bytes.len() - self.at) / 3)
    }

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
        let Some((text, rest)) = rest.split_at_checked(length) else {
            return Err(Stop::Short);
        };
        match rest {
            [b'\r', b'\n', ..] => {
                self.at += length + 2;
                Ok(text)
            }
            [] | [b'\r'] => Err(Stop::Short),
            _ => malformed("a string does not end where it says"),
        }
    }

    /// Takes `count` values more from the room that is left.
    fn take(&mut self, count: usize) -> Result<usize, Stop> {
        match self.room.checked_sub(count) {
            Some(room) => {
                self.room = room;
                Ok(count)
            }
            None => malformed("a reply has more than a million values"),
        }
    }

    fn list(&mut self, count: usize, depth: u8) -> Result<Vec<Value>, Stop> {
        let count = self.take(count)?;
        let mut values = Vec::with_capacity(self.room_for(count));
        for _ in 0..count {
            values.push(self.nested(depth + 1)?);
        }
        Ok(values)
    }

    /// Reads a value of any kind.
    fn nested(&mut self, depth: u8) -> Result<Value, Stop> {
        if depth > DEEPEST {
            return malformed("a reply is nested deeper than 16 levels");
        }
        let line = self.line()?;
        let (mark, text) = (line[0], &line[1..]);
        Ok(match mark {
            b':' => Value::Integer(number(text)?),
            b'+' => Value::Text(text.to_vec()),
            b'-' => error(text),
            b'$' => match length(text)? {
                Some(length) => Value::Text(self.bulk(length)?.to_vec()),
                None => Value::Nil,
            },
            b'*' => match length(text)? {
                Some(count) => Value::List(self.list(count, depth)?),
                None => Value::Nil,
            },
            _ => return malformed("a reply begins with no known mark"),
        })
    }
}

fn error(text: &[u8]) -> Value {
    Value::Error(String::from_utf8_lossy(text).replace(['\r', '\n'], " "))
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

fn number(text: &[u8]) -> Result<i64, Stop> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    // Below zero there is one number more than above.
    let add = |number: i64, digit: &u8| {
        let digit = i64::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?);
        number
            .checked_mul(10)?
            .checked_add(if is_negative { -digit } else { digit })
    };
    match digits.iter().try_fold(0, add) {
        Some(number) if !digits.is_empty() => Ok(number),
        _ => malformed("an integer is no number of 64 bits"),
    }
}
