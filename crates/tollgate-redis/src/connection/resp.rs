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

    /// The text behind a name, in a list of names and values, alternating.
    pub(crate) fn text_of(&self, name: &str) -> Option<&str> {
        let mut pairs = self.list()?.chunks_exact(2);
        pairs.find(|pair| pair[0].text() == Some(name))?[1].text()
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
    let mut reader = Reader {
        bytes,
        at: 0,
        room: MOST,
    };
    match reader.value(0) {
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
    /// The next line with its mark, without its end.
    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = &self.bytes[self.at..];
        let end = rest
            .iter()
            .position(|byte| *byte == b'\r')
            .ok_or(Stop::Short)?;
        match rest.get(end + 1) {
            Some(b'\n') if end > 0 => {
                self.at += end + 2;
                Ok(&rest[..end])
            }
            Some(_) => malformed("a line does not end with CR LF"),
            None => Err(Stop::Short),
        }
    }

    fn bulk(&mut self, length: usize) -> Result<&'a [u8], Stop> {
        if length > LONGEST {
            return malformed("a string is longer than 16 MiB");
        }
        let rest = &self.bytes[self.at..];
        let (text, rest) = rest.split_at_checked(length).ok_or(Stop::Short)?;
        match rest {
            [b'\r', b'\n', ..] => {
                self.at += length + 2;
                Ok(text)
            }
            [] | [b'\r'] => Err(Stop::Short),
            _ => malformed("a string does not end where it says"),
        }
    }

    fn list(&mut self, count: usize, depth: u8) -> Result<Value, Stop> {
        self.room = match self.room.checked_sub(count) {
            Some(room) => room,
            None => return malformed("a reply has more than a million values"),
        };
        // An element has three bytes at least, so that a count alone reserves nothing.
        let most = count.min((self.bytes.len() - self.at) / 3);
        let mut integers = Integers::with_capacity(if depth == 0 { most } else { 0 });
        let is_integer = |reader: &Self| reader.bytes.get(reader.at) == Some(&b':');
        while depth == 0 && integers.len() < count && is_integer(self) {
            integers.push(number(&self.line()?[1..])?);
        }
        if count > 0 && integers.len() == count {
            return Ok(Value::Integers(integers));
        }
        let mut values = Vec::with_capacity(most);
        values.extend(integers.into_iter().map(Value::Integer));
        while values.len() < count {
            values.push(self.value(depth + 1)?);
        }
        Ok(Value::List(values))
    }

    /// Reads a value of any kind.
    fn value(&mut self, depth: u8) -> Result<Value, Stop> {
        if depth > DEEPEST {
            return malformed("a reply is nested deeper than 16 levels");
        }
        let line = self.line()?;
        let (mark, text) = (line[0], &line[1..]);
        Ok(match mark {
            b':' => Value::Integer(number(text)?),
            b'+' => Value::Text(text.to_vec()),
            b'-' => Value::Error(String::from_utf8_lossy(text).replace(['\r', '\n'], " ")),
            b'$' => match length(text)? {
                Some(length) => Value::Text(self.bulk(length)?.to_vec()),
                None => Value::Nil,
            },
            b'*' => match length(text)? {
                Some(count) => self.list(count, depth)?,
                None => Value::Nil,
            },
            _ => return malformed("a reply begins with no known mark"),
        })
    }
}

/// A length, or `None` for -1.
fn length(text: &[u8]) -> Result<Option<usize>, Stop> {
    match number(text)? {
        -1 => Ok(None),
        length => {
            (usize::try_from(length).map(Some)).or_else(|_| malformed("a length is negative"))
        }
    }
}

fn number(text: &[u8]) -> Result<i64, Stop> {
    let number = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.map_or_else(|| malformed("an integer is no number of 64 bits"), Ok)
}
