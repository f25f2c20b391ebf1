//! The keys of clients in a document, which no message shows.

use std::ops::Range;

use crate::{
    format::Format,
    node::{Node, Value},
    schema::table_of,
};

/// Where a text has keys of clients, in bytes: what the overrides say besides their rule, limit, time and reason.
#[derive(Debug, Default)]
pub(crate) struct HiddenKeys {
    /// In the order of the text, apart from each other.
    ranges: Vec<Range<usize>>,
    /// Whether a key is written in a way whose place is not known.
    may_be_more: bool,
}

/// In the place of a key, which shows it neither.
const HASH: &str = "hash";

/// Whether a field of an override may be shown.
fn is_shown(field: &str) -> bool {
    field != "key" && table_of("override").fields.contains(&field)
}

/// Whether a field of a document may have keys. One that is unknown may have been meant for overrides.
fn may_have_keys(field: &str) -> bool {
    field == "overrides" || !table_of("").fields.contains(&field)
}

impl HiddenKeys {
    /// The keys in a text that could be read as a whole.
    pub(crate) fn of_tree(root: &Node, text: &str, format: Format) -> Self {
        let mut keys = Self::default();
        let fields = root.fields().iter();
        for (_, node) in fields.filter(|(name, _)| may_have_keys(&name.text)) {
            keys.add_node(node, text, false);
        }
        if keys.may_be_more {
            keys.add_written(text, format);
        }
        keys.sorted()
    }

    /// The keys in a text whose syntax is wrong: what looks like one.
    pub(crate) fn of_text(text: &str, format: Format) -> Self {
        let mut keys = Self::default();
        keys.add_written(text, format);
        keys.sorted()
    }

    /// Whether the character that begins at this byte is of a key.
    pub(crate) fn covers(&self, at: usize) -> bool {
        let behind = self.ranges.partition_point(|range| range.start <= at);
        behind > 0 && self.ranges[behind - 1].end > at
    }

    /// Adds what a node says, if it is a key, or else what the overrides in it say of keys.
    fn add_node(&mut self, node: &Node, text: &str, is_key: bool) {
        match &node.value {
            Value::List(nodes) => {
                nodes
                    .iter()
                    .for_each(|node| self.add_node(node, text, is_key));
            }
            Value::Table(fields) => {
                for (name, node) in fields {
                    if is_key && name.text != HASH {
                        self.add(name.span.clone(), text);
                        self.add_node(node, text, true);
                    } else if !is_key && !is_shown(&name.text) {
                        self.add_node(node, text, true);
                    }
                }
            }
            value => {
                let written = text.get(node.span.clone()).unwrap_or_default();
                let is_there = match value {
                    Value::Text(key) => written.contains(&**key) || written.starts_with('"'),
                    _ => !written.is_empty(),
                };
                self.may_be_more |= !is_there;
                self.add(node.span.clone(), text);
            }
        }
    }

    /// Adds what is written here, without its quotes.
    fn add(&mut self, span: Range<usize>, text: &str) {
        const QUOTES: [char; 2] = ['"', '\''];
        let written = text.get(span.clone()).unwrap_or_default();
        let start = span.start + (written.len() - written.trim_start_matches(QUOTES).len());
        let end = span.start + written.trim_end_matches(QUOTES).len();
        if start < end {
            self.ranges.push(start..end);
        }
    }

    /// Adds what is behind the word `overrides`, up to the next table of another name: all words, but for the names of fields and the
    /// first word of one that may be shown.
    fn add_written(&mut self, text: &str, format: Format) {
        let (mut begin, mut is_among) = (0, false);
        for line in text.split_inclusive('\n') {
            let mut from = 0;
            if let Some(name) = table_name(line, format) {
                is_among = may_have_keys(name);
                from = line.find(name).map_or(0, |at| at + name.len());
            }
            if !is_among && let Some(at) = line.find("overrides") {
                is_among = true;
                from = at + "overrides".len();
            }
            if is_among {
                self.add_words(begin + from, &line[from..]);
            }
            begin += line.len();
        }
    }

    fn add_words(&mut self, begin: usize, line: &str) {
        let is_between = |c: char| c.is_whitespace() || "{}[],=:\"'".contains(c);
        // Whether the next word is the first one of a value that may be shown.
        let (mut at, mut may_show) = (0, false);
        while let Some(start) = line[at..].find(|c| !is_between(c)) {
            may_show &= !line[at..at + start].contains([',', '{', '}']);
            let start = at + start;
            let rest = &line[start..];
            let (word, behind) = rest.split_at(rest.find(is_between).unwrap_or(rest.len()));
            let behind = behind.trim_start_matches(['"', '\'', ' ']);
            let is_field = word == HASH || table_of("override").fields.contains(&word);
            at = start + word.len();
            if is_field && behind.starts_with(['=', ':']) {
                may_show = word == HASH || is_shown(word);
            } else if word.contains(char::is_alphanumeric) && !std::mem::take(&mut may_show) {
                self.ranges.push(begin + start..begin + at);
            }
        }
    }

    fn sorted(mut self) -> Self {
        self.ranges.sort_by_key(|range| (range.start, range.end));
        let mut apart: Vec<Range<usize>> = Vec::with_capacity(self.ranges.len());
        for range in self.ranges {
            match apart.last_mut() {
                Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
                _ => apart.push(range),
            }
        }
        self.ranges = apart;
        self
    }
}

/// The name of a table of the document that begins in this line: `[[rules]]`, or `rules:` at its very left.
fn table_name(line: &str, format: Format) -> Option<&str> {
    match format {
        Format::Toml => {
            let name = line.trim_start().strip_prefix('[')?;
            let name = name.trim_start_matches('[').split(']').next()?;
            name.split('.').next().map(str::trim)
        }
        Format::Yaml => {
            let (name, _) = line.split_once(':')?;
            let is_left = !name.starts_with(|c: char| c.is_whitespace() || "-{[#".contains(c));
            is_left.then(|| name.trim_matches(['"', '\'']))
        }
        Format::Json => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(text: &str, format: Format) -> String {
        let keys = HiddenKeys::of_text(text, format);
        let shown = |(at, c)| if keys.covers(at) { '*' } else { c };
        text.char_indices().map(shown).collect()
    }

    #[test]
    fn what_looks_like_a_key_is_found_in_a_text_with_wrong_syntax() {
        for (format, text, shown) in [
            (Format::Toml, "key = \"acme\"", "key = \"****\""),
            (Format::Toml, "key = \"acme", "key = \"****"),
            (Format::Toml, "key = acme=", "key = ****="),
            (Format::Toml, "key \"acme\"", "*** \"****\""),
            // A key that is called like a field which may be shown.
            (
                Format::Toml,
                "key \"reason\" \"acme\"",
                "*** \"******\" \"****\"",
            ),
            (Format::Toml, "key = ['acme', \"b\"", "key = ['****', \"*\""),
            (
                Format::Toml,
                "rule = \"api\" 'acme'",
                "rule = \"api\" '****'",
            ),
            (
                Format::Toml,
                "key = { hash = \"9f\" # acme",
                "key = { hash = \"9f\" # ****",
            ),
            (Format::Yaml, "  - key: acme: b", "  - key: ****: *"),
            (
                Format::Yaml,
                "  - { rule: c, key: k k, limit: 5/",
                "  - { rule: c, key: * *, limit: 5/",
            ),
            (Format::Yaml, "  - limit: , key", "  - limit: , ***"),
            (
                Format::Json,
                "{\"key\":\"ac\\\"me\", \"limit\": \"5/s\"",
                "{\"key\":\"***\"**\", \"limit\": \"5/s\"",
            ),
            (Format::Json, "{\"key\":acme}", "{\"key\":****}"),
        ] {
            let begin = match format {
                Format::Toml => "[[overrides]]\n",
                Format::Yaml => "overrides:\n",
                Format::Json => "\"overrides\": [\n",
            };
            let text = masked(&format!("{begin}{text}"), format);
            assert_eq!(text, format!("{begin}{shown}"));
        }
    }

    #[test]
    fn rules_are_shown_as_they_are() {
        for (format, text) in [
            (Format::Toml, "[[rules]]\nname = \"api\"\nby = \"path\"\n"),
            (Format::Yaml, "rules:\n  - name: api\n    by: path\n"),
            (
                Format::Json,
                "{\"rules\": [{\"name\": \"api\", \"by\": \"path\"",
            ),
        ] {
            assert_eq!(masked(text, format), text);
        }
        let behind = "[[overrides]]\nkey = 'k'\n[[rules]]\nby = 'path'";
        assert!(masked(behind, Format::Toml).ends_with("key = '*'\n[[rules]]\nby = 'path'"));
        let behind = "overrides: [{ key: k }]\nrules:\n  - by: path";
        assert_eq!(
            masked(behind, Format::Yaml),
            "overrides: [{ key: * }]\nrules:\n  - by: path"
        );
    }
}
