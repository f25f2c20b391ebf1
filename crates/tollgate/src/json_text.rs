//! JSON, written by hand: the bodies of this crate are objects of a few texts and numbers, and a serialiser would be compiled by
//! every user.

use std::fmt::Write as _;

use bytes::Bytes;
use http::{
    HeaderValue, Response,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};

/// A JSON object that is being written.
#[derive(Debug)]
pub(crate) struct JsonObject(String);

impl JsonObject {
    pub(crate) fn new() -> Self {
        Self("{".to_owned())
    }

    /// Adds a member, whose value is written by `value`.
    pub(crate) fn member(&mut self, name: &str, value: impl FnOnce(&mut String)) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        push_text(&mut self.0, name);
        self.0.push(':');
        value(&mut self.0);
    }

    pub(crate) fn text(&mut self, name: &str, value: &str) {
        self.member(name, |json| push_text(json, value));
    }

    /// A number, or null.
    pub(crate) fn number(&mut self, name: &str, value: impl Into<Option<u64>>) {
        self.member(name, |json| match value.into() {
            // Writing to a string cannot fail.
            Some(value) => drop(write!(json, "{value}")),
            None => json.push_str("null"),
        });
    }

    /// The object without its closing brace, for more members.
    pub(crate) fn open(self) -> String {
        self.0
    }

    pub(crate) fn close(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// A response with this JSON, which no cache stores.
pub(crate) fn respond(media_type: &'static str, json: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::new(json.into());
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A list of values, each of which is written by `value`.
pub(crate) fn push_list<T>(
    json: &mut String,
    items: impl IntoIterator<Item = T>,
    mut value: impl FnMut(&mut String, T),
) {
    json.push('[');
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            json.push(',');
        }
        value(json, item);
    }
    json.push(']');
}

/// A quoted text (RFC 8259 §7).
pub(crate) fn push_text(json: &mut String, text: &str) {
    json.push('"');
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            // Writing to a string cannot fail.
            '\0'..='\x1f' => drop(write!(json, "\\u{:04x}", u32::from(c))),
            _ => json.push(c),
        }
    }
    json.push('"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    proptest! {
        #[test]
        fn a_json_reader_finds_what_was_written(
            name in "\\PC*|[\\x00-\\x7f]{0,9}",
            texts in proptest::collection::vec(any::<String>(), 0..5),
            number in any::<Option<u64>>(),
        ) {
            let mut object = JsonObject::new();
            object.number("number", number);
            object.member("list", |json| push_list(json, &texts, |json, text| push_text(json, text)));
            object.text("last", &name);
            let object = object.close();
            let read: Value = serde_json::from_str(&object).expect(&object);
            prop_assert_eq!(read, json!({ "number": number, "list": texts, "last": name }));
        }
    }
}
