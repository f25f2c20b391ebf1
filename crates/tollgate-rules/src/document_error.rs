//! What is wrong with a document: collected while it is read, and then an error with a marker under every wrong part.

use std::{error::Error, fmt, ops::Range};

use crate::{
    format::Format,
    node::{MOST, Node, Problem, Value, floor},
    schema::{is_field, table_of},
};

/// A document that is not a rule set: all that is wrong with it, and what would be right.
///
/// Displayed, each mistake has the file, the line, the column, the line of the document, and a marker under the wrong part. It goes
/// to logs, so a line with the key of an override is not shown; where the syntax is wrong, no line from the first override on, or from
/// the first list or table with an unknown name.
#[derive(Clone, PartialEq, Eq)]
pub struct DocumentError {
    mistakes: Vec<Mistake>,
}

/// One mistake in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mistake {
    /// The name of the document: the path of a file.
    pub origin: String,
    /// The line, from 1; 0 where it is about the document as a whole.
    pub line: usize,
    /// The column in characters, from 1; 0 where it is about the document as a whole.
    pub column: usize,
    /// What is wrong, and what would be right.
    pub message: String,
    /// The line of the document, if it may be shown, and where the marker is in it, in characters.
    shown: Option<(String, Range<usize>)>,
}

/// The most characters of a line that are displayed.
const WIDTH: usize = 120;

impl DocumentError {
    pub(crate) fn none() -> Self {
        let mistakes = Vec::new();
        Self { mistakes }
    }

    /// Adds what is wrong with a text, in its order.
    pub(crate) fn add(
        &mut self,
        origin: &str,
        text: &str,
        problems: &[Problem],
        hidden: &HiddenLines,
    ) {
        // They are in the order of the text: its lines are counted once.
        let (mut counted, mut number) = (0, 1);
        for problem in problems {
            let start = floor(text, problem.span.start);
            let end = floor(text, problem.span.end.max(start));
            let line = line_at(text, start);
            let lines = text.get(counted..line.start).unwrap_or_default();
            number += lines.matches('\n').count();
            counted = line.start;
            let (start, end) = (start.min(line.end), end.min(line.end));
            let (before, marked) = (&text[line.start..start], text[start..end].trim_end());
            let (column, is_shown) = (before.chars().count(), !hidden.has(&line));
            self.mistakes.push(Mistake {
                origin: origin.to_owned(),
                line: number,
                column: column + 1,
                message: problem.message.clone(),
                shown: is_shown.then(|| cropped(&text[line], marked, column)),
            });
        }
    }

    /// An error about a document as a whole: it cannot be read, say.
    pub(crate) fn of_whole(origin: impl fmt::Display, message: impl Into<String>) -> Self {
        Self {
            mistakes: vec![Mistake {
                origin: origin.to_string(),
                line: 0,
                column: 0,
                message: message.into(),
                shown: None,
            }],
        }
    }

    /// The mistakes, in the order of the document: the first 100 that are found.
    #[must_use]
    pub fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (origin, number, message) = (&self.origin, self.line.to_string(), &self.message);
        if self.line == 0 {
            return write!(f, "{origin}: {message}");
        }
        write!(f, "{origin}:{number}:{}: {message}", self.column)?;
        let Some((line, marked)) = &self.shown else {
            return Ok(());
        };
        let margin = " ".repeat(number.len());
        write!(f, "\n{margin} |\n{number} | {line}\n")?;
        let before = " ".repeat(marked.start);
        write!(f, "{margin} | {before}{}", "^".repeat(marked.len().max(1)))
    }
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.mistakes.iter().enumerate() {
            if index > 0 {
                f.write_str("\n\n")?;
            }
            mistake.fmt(f)?;
        }
        match self.mistakes.len() {
            0 | 1 => Ok(()),
            MOST.. => write!(f, "\n\n{MOST} mistakes or more"),
            all => write!(f, "\n\n{all} mistakes"),
        }
    }
}

// As it is displayed: it comes out of `main`.
tollgate_core::debug_fields!(DocumentError as Display);

impl Error for DocumentError {}

/// The line of a byte of a text, from 1.
pub(crate) fn line_of(text: &[u8], at: usize) -> usize {
    1 + text[..at].iter().filter(|byte| **byte == b'\n').count()
}

/// The lines of a text that may have the key of a client.
#[derive(Debug, Default)]
pub(crate) struct HiddenLines {
    /// Where parts of the text begin, in its order, and whether each may have one.
    parts: Vec<(usize, bool)>,
}

impl HiddenLines {
    /// Those of a text that could be read as a whole: what overrides say besides their rule, limit, time and reason.
    pub(crate) fn of_tree(root: &Node) -> Self {
        let mut hidden = Self::default();
        let is_document = matches!(root.value, Value::Table(_));
        hidden.parts.push((0, !is_document));
        for (name, node) in root.fields() {
            hidden.parts.push((name.span.start, false));
            // A field that is unknown may have been meant for overrides.
            if name.text == "overrides" || !table_of("").fields.contains(&&*name.text) {
                hidden.add(node, false);
            } else {
                hidden.show(node);
            }
        }
        hidden.parts.sort_unstable();
        hidden
    }

    /// Those of a text whose syntax is wrong: all from the line on where overrides begin, or what may have been meant for them.
    pub(crate) fn of_text(text: &str, format: Format) -> Self {
        // YAML in braces has no lines of its own.
        let format = match text.trim_start().starts_with('{') {
            true => Format::Json,
            false => format,
        };
        let (mut begin, mut depth) = (0, 0);
        for line in text.split_inclusive('\n') {
            let said = without_comment(line, format);
            // All of them: the depth goes on with each line.
            let has_unknown = has_unknown_table(said, format, &mut depth);
            if has_unknown || said.contains("overrides") || has_client(said) {
                return Self {
                    parts: vec![(begin, true)],
                };
            }
            begin += line.len();
        }
        Self::default()
    }

    /// Adds the parts of overrides. `is_key`: they are of a key.
    fn add(&mut self, node: &Node, is_key: bool) {
        let is_value = !matches!(node.value, Value::List(_) | Value::Table(_));
        self.parts.push((node.span.start, is_key || is_value));
        node.items().iter().for_each(|node| self.add(node, is_key));
        for (name, node) in node.fields() {
            let is_shown = name.text != "key" && table_of("override").fields.contains(&&*name.text);
            let is_key = is_key || !is_shown;
            self.parts.push((name.span.start, is_key));
            if is_key {
                self.add(node, true);
            }
        }
    }

    /// Adds the parts of what has no keys: a line of it may have an override as well. Overrides that are written behind a table of TOML
    /// are a field of that, and one whose header is missing is a part of it.
    fn show(&mut self, node: &Node) {
        self.parts.push((node.span.start, false));
        node.items().iter().for_each(|node| self.show(node));
        let has_rule = node.get("rule").is_some();
        for (name, node) in node.fields() {
            self.parts.push((name.span.start, false));
            let is_hidden = match &*name.text {
                "overrides" => true,
                "key" => has_rule,
                known if is_field(known) => false,
                _ if node.get("rule").or(node.get("key")).is_some() => true,
                _ => node.items().iter().any(|it| !it.fields().is_empty()),
            };
            match is_hidden {
                true => self.add(node, false),
                false => self.show(node),
            }
        }
    }

    fn has(&self, line: &Range<usize>) -> bool {
        let begun = self.parts.partition_point(|(at, _)| *at <= line.start);
        let mut parts = self.parts[begun.saturating_sub(1)..]
            .iter()
            .take_while(|(at, _)| *at <= line.end);
        parts.any(|(_, may_have_key)| *may_have_key)
    }
}

/// A line up to its comment, if it is plain where that begins.
fn without_comment(line: &str, format: Format) -> &str {
    let begins = |at: &usize| {
        let before = &line[..*at];
        let is_apart = before.is_empty() || before.ends_with([' ', '\t']);
        is_apart && before.matches(['"', '\'']).count().is_multiple_of(2)
    };
    match line.find('#').filter(begins) {
        Some(at) if format != Format::Json => &line[..at],
        _ => line,
    }
}

/// Whether a table that no document has begins in a line, which may have been meant for overrides. `depth`: how deep in braces and
/// brackets the line begins.
fn has_unknown_table(line: &str, format: Format, depth: &mut usize) -> bool {
    let is_unknown =
        |begin: &str| name_at(begin).is_some_and(|name| !table_of("").fields.contains(&name));
    match format {
        Format::Toml if line.trim_start().starts_with('[') => is_unknown(line),
        // A field of whichever table stands before it.
        Format::Toml => {
            let (name, value) = line.split_once('=').unwrap_or_default();
            let table = value.trim_start().strip_prefix(['[', '{']);
            // The names of lists are free.
            let is_list = |field: &str| table_of("list").fields.contains(&field);
            table.is_some_and(|begin| !name_at(begin).is_some_and(is_list))
                && name_at(name).is_some_and(|name| !is_field(name))
        }
        Format::Yaml => !line.starts_with([' ', '\t']) && is_unknown(line),
        Format::Json => line.split_inclusive(['{', '[', ',', '}', ']']).any(|part| {
            let is_found = *depth == 1 && is_unknown(part.trim_start());
            match part.as_bytes().last() {
                Some(b'{' | b'[') => *depth += 1,
                Some(b'}' | b']') => *depth = depth.saturating_sub(1),
                _ => {}
            }
            is_found
        }),
    }
}

/// The name that a part of a line begins with.
fn name_at(begin: &str) -> Option<&str> {
    let mut words = begin
        .trim_start_matches(['[', '?', '"', '\'', ' ', '\t'])
        .split(|c: char| !c.is_alphanumeric() && !"_-$".contains(c));
    words
        .next()
        .filter(|name| name.starts_with(char::is_alphabetic))
}

/// Whether a field that names a client may begin in a line, well written or not.
fn has_client(line: &str) -> bool {
    let words = ["key", "client"];
    let mut found = words.iter().flat_map(|word| line.match_indices(word));
    found.any(|(at, word)| {
        let (before, behind) = (&line[..at], &line[at + word.len()..]);
        let sign = behind.trim_start_matches(['"', '\'', ' ', '\t']);
        if sign.starts_with(['=', ':']) {
            return !before.ends_with(['-', '_']);
        }
        let begin = before.trim_end_matches(['"', '\'', ' ', '\t']);
        let is_item = |dash: &str| dash.is_empty() || dash.ends_with([' ', '\t']);
        let is_field = begin.is_empty()
            || begin.ends_with(['{', '[', ',', '?'])
            || begin.strip_suffix('-').is_some_and(is_item);
        // Other fields begin so, and a part of a path.
        let is_other = behind.starts_with("_ip") || behind.starts_with("_in");
        is_field && !is_other && !begin.ends_with("/{")
    })
}

/// The bytes of the line with this byte of a text, without what ends it.
fn line_at(text: &str, at: usize) -> Range<usize> {
    let begin = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let rest = &text[begin..];
    let line = &rest[..rest.find('\n').unwrap_or(rest.len())];
    // One at most: a line may be megabytes of them.
    begin..begin + line.strip_suffix('\r').unwrap_or(line).len()
}

/// At most [`WIDTH`] characters of a line around the marked bytes, without those that a terminal would obey, and where the mark is in
/// them. `column` characters of the line are before the mark.
fn cropped(line: &str, marked: &str, column: usize) -> (String, Range<usize>) {
    let before = match line.chars().nth(WIDTH) {
        Some(_) => column.min(WIDTH / 4),
        None => column,
    };
    let shown = line
        .chars()
        .skip(column - before)
        .take(WIDTH)
        .map(|c| if c.is_control() { ' ' } else { c });
    let dots = if column > before { "…" } else { "" };
    let text: String = dots.chars().chain(shown).collect();
    let start = before + dots.chars().count();
    // As many as could be displayed.
    let marked = marked.chars().take(WIDTH + 1).count();
    (text, start..(start + marked).min(WIDTH + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{format::Format, node::Problems};

    fn displayed(text: &str, span: Range<usize>) -> String {
        let message = "it is wrong".to_owned();
        let hidden = HiddenLines::default();
        let mut error = DocumentError::none();
        error.add("a.toml", text, &[Problem { span, message }], &hidden);
        error.to_string()
    }

    #[test]
    fn the_marker_is_under_the_wrong_part() {
        assert_eq!(
            displayed("one\ntwo = 3\r\nfour", 10..11),
            "a.toml:2:7: it is wrong\n  |\n2 | two = 3\n  |       ^"
        );
        // Characters, not bytes.
        assert_eq!(
            displayed("ä = \"größe\"", 7..13),
            "a.toml:1:7: it is wrong\n  |\n1 | ä = \"größe\"\n  |       ^^^^"
        );
        // A part of several lines is marked in its first one, the end of the text with one mark.
        assert!(displayed("ab\ncd", 1..5).ends_with("1 | ab\n  |  ^"));
        assert!(displayed("ab", 2..2).ends_with("1 | ab\n  |   ^"));
        assert!(displayed("", 0..0).ends_with("1 | \n  | ^"));
        // What ends a line is no part of it, and what would move the cursor of a terminal is a space.
        assert!(displayed("ab\r\r\ncd", 0..1).ends_with("1 | ab \n  | ^"));
        assert!(displayed("ab", 7..900).ends_with("1 | ab\n  |   ^"));
        // A part that begins within a character begins with it.
        assert!(displayed("a→b", 3..4).ends_with("1 | a→b\n  |  ^"));
    }

    #[test]
    fn a_line_is_shown_unless_it_may_have_a_key() {
        for (format, text) in [
            (
                Format::Toml,
                "[[overrides]]\nrule = 'api'\nkey = '''\nacme'''\nlimit = '5/s'\n[[rules]]\nname = 'api'\n",
            ),
            (
                Format::Yaml,
                "overrides:\n  - rule: api\n    key: |\n      acme\nrules:\n  - name: api\n",
            ),
            (
                Format::Json,
                "{\"overrides\": [\n{\"rule\": \"api\",\n\"key\": [\"acme\",\n\"acme\"]}],\n\"rules\": [\n{\"name\": \"api\"}]}",
            ),
            // Misspelt fields, and an anchor elsewhere.
            (
                Format::Yaml,
                "rules: [{ name: api }]\noverides:\n  - kye: acme\n",
            ),
            (Format::Yaml, "- rule: acme\n"),
            (
                Format::Yaml,
                "rules:\n  - name: api\n  - name: &k acme\noverrides:\n  - key: *k\n",
            ),
            // A table of a rule behind an override.
            (
                Format::Toml,
                "[[rules]]\nname = 'api'\n[[overrides]]\nrule = 'a'\nkey = 'acme'\n[rules.when]\npath = '/api'\n",
            ),
            // Overrides behind a table of TOML, which are a field of that.
            (
                Format::Toml,
                "[[rules]]\nname = 'api'\noverrides = [{ rule = 'a', key = 'acme' }]\n",
            ),
            (
                Format::Toml,
                "[shed]\nthresholds = ['api']\noverides = [{ rule = 'a', kye = 'acme' }]\n",
            ),
            // All of it is misspelt, or its header is missing.
            (
                Format::Toml,
                "[[rules]]\nname = 'api'\noverides = [{ rul = 'a', kye = 'acme' }]\n",
            ),
            (
                Format::Toml,
                "[[rules]]\nname = 'api'\nrule = 'a'\nkey = [\n'acme']\n[lists]\na = { file = 'api' }\n",
            ),
            // A key of something else.
            (
                Format::Toml,
                "[[rules]]\nplans = { key = 'api' }\nwhen = { descriptor = [{ key = 'api', value = 'a' }] }\n",
            ),
            // Wrong syntax.
            (
                Format::Toml,
                "name = \"api\"\nby = \"header:x-api-key\"\n[[overrides]]\nkey = \"acme\" \"\n# acme\n",
            ),
            (
                Format::Json,
                "{\"rules\": [{\"name\": \"api\"}],\n\"overides\": [{\"key\": \"acme\"\n",
            ),
            // And misspelt fields.
            (
                Format::Toml,
                "[[rules]]\nname = 'api'\n[[override]]\nkye \"acme\"\n[[rules]]\n# acme\n",
            ),
            (Format::Toml, "name = 'api'\nkey \"acme\"\n"),
            (Format::Toml, "name = 'api'\nkeys = [\"acme\n"),
            (Format::Toml, "name = 'api'\n client = \"acme\n"),
            (Format::Toml, "name = 'api'\n{ rule = 'a', key\t= \"acme\n"),
            (
                Format::Yaml,
                "rules:\n  - name: api\n  - ? key\n    : 'acme\n",
            ),
            (Format::Yaml, "rules:\n- name: api\n- key acme: [acme\n"),
            (
                Format::Toml,
                "rules = [{ name = 'api' }]\noverides = [{ rule = 'a', kye = 'acme\n",
            ),
            (
                Format::Toml,
                "[[rules]]\nname = 'api'\nby = ['api']\nover-rides = { rule = 'a', kye = 'acme\n",
            ),
            (
                Format::Yaml,
                "rules:\n  - name: api\noveride:\n  - kye: 'acme\n",
            ),
            (
                Format::Yaml,
                "{ rules: [{ name: api }],\noverides: [{ kye: 'acme\n",
            ),
            (
                Format::Json,
                "{\"rules\": [{\"by\": [\"api\"]}],\n\"overides\": [\n{\"kye\": \"acme\"\n",
            ),
            // What only looks so.
            (
                Format::Toml,
                "# Limits per API key: 100 a minute\n[[rules]] # api: no overrides, no key = 1\nby = \"client_ip\" # api, client a\n\
                 when = { client_in = 'api' }\npath = \"/api/{key}\"\nname = \"api\" \"\n",
            ),
            (
                Format::Toml,
                "[lists]\na = { file = 'api' }\nname = \"api\" \"\n",
            ),
            (
                Format::Yaml,
                "# overrides and keys: none\nrules:\n  - { name: 'api' # per key: one\n  - by: [client_ip, api\n",
            ),
            (
                Format::Json,
                "{\"rules\": [{\"by\": [\"client_ip\", \"path:/{api}\"],\n\"limit\": \"api\"}\n{\"name\": \"api\"}",
            ),
        ] {
            let problems = Problems::default();
            let root = format.parse(text, &problems);
            let hidden = match problems.is_empty() {
                true => HiddenLines::of_tree(&root),
                false => HiddenLines::of_text(text, format),
            };
            for (at, _) in text.char_indices() {
                let line = line_at(text, at);
                let (shown, is_hidden) = (&text[line.clone()], hidden.has(&line));
                assert!(is_hidden || !shown.contains("acme"), "{shown}");
                assert!(!is_hidden || !shown.contains("api"), "{shown}");
            }
        }
    }

    #[test]
    fn a_long_line_is_cropped_around_the_wrong_part() {
        let long = "x".repeat(5_000);
        let shown = displayed(&long, 4_000..4_003);
        assert!(shown.len() < 600, "{}", shown.len());
        assert!(shown.contains("^^^") && !shown.contains("^^^^"), "{shown}");
        let shown = displayed(&long, 0..5_000);
        assert!(shown.len() < 600, "{}", shown.len());
    }
}
