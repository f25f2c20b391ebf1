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
        let nodes = elements.map(|element| element.and_then(node));
        let entries = nodes.map(|node| node.map_or(Entry::Unreadable, Entry::Address));
        broken.into_iter().chain(entries)
    })
}

/// The `for` parameters of a line: all that are read of it, and maybe more.
type Line<'a> = SmallVec<[Option<&'a [u8]>; 8]>;

/// Parses a line; `None` if it violates RFC 7239 §4. Spaces around `;` are accepted.
fn elements(line: &[u8]) -> Option<Line<'_>> {
    let (mut elements, mut found) = (Line::default(), None);
    let mut rest = line;
    loop {
        let (name, behind) = token(rest.trim_ascii_start());
        rest = behind;
        if !name.is_empty() {
            let (value, behind) = value(rest.strip_prefix(b"=")?)?;
            if name.eq_ignore_ascii_case(b"for") && found.replace(value).is_some() {
                return None;
            }
            rest = behind.trim_ascii_start();
        }
        if rest.first() != Some(&b';') {
            if elements.len() == 2 * MAX_ENTRIES {
                elements.drain(..MAX_ENTRIES);
            }
            elements.push(found.take());
        }
        match rest.split_first() {
            None => return Some(elements),
            Some((b';' | b',', behind)) => rest = behind,
            Some(_) => return None,
        }
    }
}

/// A token or the content of a quoted string, and what is behind it.
fn value(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let Some(quoted) = text.strip_prefix(b"\"") else {
        return Some(token(text)).filter(|(token, _)| !token.is_empty());
    };
    let mut at = 0;
    loop {
        match quoted.get(at)? {
            b'"' => return Some((&quoted[..at], &quoted[at + 1..])),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

fn token(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|&b| !is_token(b));
    text.split_at(end.unwrap_or(text.len()))
}

/// `tchar` of RFC 9110 §5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
