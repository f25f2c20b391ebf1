//! `Forwarded`, RFC 7239.

use http::{HeaderMap, header};
use smallvec::SmallVec;

use crate::key::trust::{Entry, MAX_ENTRIES, node};

/// The maximum number of bytes to read, over all lines. Quotes can be parsed only from the left, so a line is read completely or
/// not at all.
const MAX_BYTES: usize = 8 * 1024;

/// The `for` parameters of all lines, from the last element of the last line on.
///
/// A malformed line is one entry, [`Entry::Broken`]. Lines to the left are read lazily.
pub(crate) fn entries(headers: &HeaderMap) -> impl Iterator<Item = Entry> {
    let mut bytes_left = MAX_BYTES;
    let lines = headers.get_all(header::FORWARDED).iter().rev();
    lines.flat_map(move |line| {
        // An empty line counts as one byte, so that their number is bounded.
        let left = bytes_left.checked_sub(line.len().max(1));
        bytes_left = left.unwrap_or(0);
        let read = left.and_then(|_| elements(line.as_bytes()));
        let broken = read.is_none().then_some(Entry::Broken);
        let elements = read.unwrap_or_default().into_iter().rev();
        broken
            .into_iter()
            .chain(elements.map(|element| element.and_then(node).into()))
    })
}

/// The `for` parameters of a line: all that are read of it, and maybe more.
type Line<'a> = SmallVec<[Option<&'a [u8]>; 8]>;

/// Parses a line; `None` if it violates RFC 7239 §4. Spaces around `;` are accepted.
fn elements(line: &[u8]) -> Option<Line<'_>> {
    let mut elements = Line::default();
    let mut reader = Reader { rest: line };
    loop {
        if elements.len() == 2 * MAX_ENTRIES {
            elements.drain(..MAX_ENTRIES);
        }
        elements.push(reader.element()?);
        match reader.byte() {
            None => return Some(elements),
            Some(b',') => {}
            Some(_) => return None,
        }
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// The value of `for` in the next element, which ends before a comma or with the line.
    fn element(&mut self) -> Option<Option<&'a [u8]>> {
        let mut found = None;
        loop {
            self.skip_spaces();
            let name = self.token();
            if !name.is_empty() {
                if self.byte() != Some(b'=') {
                    return None;
                }
                let value = self.value()?;
                if name.eq_ignore_ascii_case(b"for") && found.replace(value).is_some() {
                    return None;
                }
                self.skip_spaces();
            }
            match self.rest.first() {
                Some(b';') => self.rest = &self.rest[1..],
                _ => return Some(found),
            }
        }
    }

    /// A token or the content of a quoted string.
    fn value(&mut self) -> Option<&'a [u8]> {
        let Some(quoted) = self.rest.strip_prefix(b"\"") else {
            return Some(self.token()).filter(|token| !token.is_empty());
        };
        let mut at = 0;
        loop {
            match quoted.get(at)? {
                b'"' => break,
                b'\\' => at += 2,
                _ => at += 1,
            }
        }
        self.rest = &quoted[at + 1..];
        Some(&quoted[..at])
    }

    fn token(&mut self) -> &'a [u8] {
        let end = self.rest.iter().position(|&b| !is_token(b));
        let (token, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        token
    }

    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    fn skip_spaces(&mut self) {
        while let [b' ' | b'\t', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }
}

/// `tchar` of RFC 9110 §5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
