//! `X-Forwarded-For`, a list without a standard; and headers with one address.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, header::ValueIter};

use crate::key::{
    extractor_fn::exactly_one,
    trust::{Entry, SOCKET, address},
};

/// The longest address with brackets, port and quotes has 49 bytes. A longer entry is invalid.
const MAX_ENTRY_BYTES: usize = 128;

pub(crate) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The entries of all lines, from the last one of the last line on.
///
/// The list is read lazily.
pub(crate) fn entries(headers: &HeaderMap) -> Entries<'_> {
    Entries {
        lines: Some(headers.get_all(X_FORWARDED_FOR).iter()),
        rest: None,
    }
}

fn read(entry: &[u8]) -> Entry {
    match entry.trim_ascii() == SOCKET.as_bytes() {
        true => Entry::Socket,
        false => address(entry).into(),
    }
}

/// See [`entries`].
#[derive(Debug)]
pub(crate) struct Entries<'a> {
    /// `None` after an entry that is too long.
    lines: Option<ValueIter<'a, HeaderValue>>,
    rest: Option<&'a [u8]>,
}

impl Iterator for Entries<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        let line = match self.rest.take() {
            Some(rest) => rest,
            None => self.lines.as_mut()?.next_back()?.as_bytes(),
        };
        let window = line.len().saturating_sub(MAX_ENTRY_BYTES);
        match line[window..].iter().rposition(|&b| b == b',') {
            Some(comma) => {
                let (rest, entry) = line.split_at(window + comma);
                self.rest = Some(rest);
                Some(read(&entry[1..]))
            }
            None if window == 0 => Some(read(line)),
            None => {
                self.lines = None;
                Some(Entry::Unreadable)
            }
        }
    }
}

/// The address, if the header occurs once and is an address.
pub(crate) fn only_address(headers: &HeaderMap, name: &HeaderName) -> Option<IpAddr> {
    let value = exactly_one(headers.get_all(name).iter()).ok()?.as_bytes();
    (value.len() <= MAX_ENTRY_BYTES)
        .then(|| address(value))
        .flatten()
}
