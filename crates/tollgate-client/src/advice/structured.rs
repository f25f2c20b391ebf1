//! Structured fields (RFC 9651), read from header fields.

use http::HeaderMap;
use sfv::{BareItem, FieldType, Item, Parser};

/// A field of this type, from all of its lines. Any error discards all of it.
pub(crate) fn field<T: FieldType>(headers: &HeaderMap, name: &str) -> Option<T> {
    let lines: Vec<_> = headers
        .get_all(name)
        .iter()
        .map(|queue| queue.as_bytes())
        .collect();
    if lines.is_empty() {
        return None;
    }
    Parser::new(&lines.join(&b", "[..])).parse().ok()
}

/// A parameter that is an integer of at least 0.
pub(crate) fn integer(item: &Item, key: &str) -> Option<u64> {
    match item.params.get(key)? {
        BareItem::Integer(integer) => u64::try_from(i64::from(*integer)).ok(),
        _ => None,
    }
}

/// The text of a string or a token: a later draft may turn one into the other.
pub(crate) fn text(item: &BareItem) -> Option<&str> {
    match item {
        BareItem::String(string) => Some(string.as_str()),
        BareItem::Token(token) => Some(token.as_str()),
        _ => None,
    }
}
