//! What a command has to say.

use serde_json::Value;

use crate::{failure::Exit, printable};

/// What a command has to say, to people and to programs.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) text: String,
    pub(crate) json: Value,
    pub(crate) exit: Exit,
    /// Whether the text is this program's own, and is printed as it is.
    is_verbatim: bool,
}

impl Report {
    /// `yes`: whether the answer is yes, for the exit code.
    pub(crate) fn new(text: impl Into<String>, json: Value, yes: bool) -> Self {
        Self {
            text: text.into(),
            json,
            exit: if yes { Exit::Yes } else { Exit::No },
            is_verbatim: false,
        }
    }

    /// A text of this program's own, which another program reads.
    pub(crate) fn verbatim(text: impl Into<String>, json: Value) -> Self {
        Self {
            is_verbatim: true,
            ..Self::new(text, json, true)
        }
    }

    /// Of a command that has printed what it has to say.
    pub(crate) fn printed_already(yes: bool) -> Self {
        Self::new("", Value::Null, yes)
    }

    /// As it is printed, with a line feed at the end.
    pub(crate) fn printed(&self, as_json: bool) -> String {
        if as_json && !self.json.is_null() {
            return json_text(&self.json);
        }
        if self.is_verbatim {
            return self.text.clone();
        }
        let text = printable::lines(&self.text);
        match text.ends_with('\n') || text.is_empty() {
            true => text,
            false => text + "\n",
        }
    }
}

/// JSON of ASCII only, whatever is in it: what a terminal would obey is escaped.
pub(crate) fn json_text(value: &Value) -> String {
    // The only error is that of a writer, and a string has none.
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    ascii(&text) + "\n"
}

/// Escapes what is not ASCII, of a text that is JSON.
pub(crate) fn ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        if c.is_ascii() && c != '\u{7f}' {
            out.push(c);
            continue;
        }
        // Such characters are part of strings only.
        for unit in c.encode_utf16(&mut [0; 2]) {
            out.push_str(&format!("\\u{unit:04x}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_is_ascii_and_means_the_same() {
        let value = json!({ "n\u{202e}": "\u{1b}[2J\u{7f}\u{9b}é😀\n\u{2028}" });
        let text = json_text(&value);
        assert!(
            text.bytes()
                .all(|byte| byte == b'\n' || (0x20..0x7f).contains(&byte)),
            "{text}"
        );
        let read: Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!(read, value);
    }
}
