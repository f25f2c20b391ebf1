//! Reading a tree: each mistake is noted with its place, and reading goes on.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use http::HeaderName;
use jiff::Timestamp;
use tollgate_core::{Quota, Tick, store::did_you_mean, types::ParseQuotaError};

use crate::{
    bindings::{Bindings, Side},
    format::Format,
    node::{MOST, Name, Node, Problems, Value},
    schema::table_of,
    term::Term,
};

/// Reads the nodes of one document.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    pub(crate) text: &'a str,
    /// The syntax of examples in messages.
    pub(crate) format: Format,
    pub(crate) problems: &'a Problems,
    /// Where what is read applies.
    pub(crate) side: Side,
    /// What code binds.
    pub(crate) bindings: &'a Bindings,
}

/// The fields of a table.
pub(crate) struct Fields<'a> {
    pub(crate) reader: Reader<'a>,
    pub(crate) entries: Vec<(&'a Name, &'a Node)>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(
        text: &'a str,
        format: Format,
        problems: &'a Problems,
        bindings: &'a Bindings,
    ) -> Self {
        Self {
            text,
            format,
            problems,
            side: bindings.side,
            bindings,
        }
    }

    /// Notes a mistake. An example of TOML in its message, `«wait = "5s"»`, is shown in the syntax of the document.
    pub(crate) fn wrong(&self, span: &Range<usize>, message: impl Into<String>) {
        let message = message.into();
        let parts = message
            .split(['«', '»'])
            .enumerate()
            .map(|(index, part)| match index % 2 {
                0 => part.to_owned(),
                _ => self.example(part),
            });
        self.problems.add(span.clone(), parts.collect::<String>());
    }

    /// The same, where nothing can be read then.
    pub(crate) fn refuse<T>(&self, span: &Range<usize>, message: impl Into<String>) -> Option<T> {
        self.wrong(span, message);
        None
    }

    pub(crate) fn expected<T>(&self, node: &Node, what: &str) -> Option<T> {
        let kind = node.value.kind();
        self.refuse(&node.span, format!("this is {kind}; write {what}"))
    }

    /// An example of TOML in the syntax of the document: `wait = "5s"` is `wait: "5s"` in YAML.
    fn example(&self, toml: &str) -> String {
        match self.format {
            Format::Toml => toml.to_owned(),
            Format::Yaml => toml.replace(" = ", ": "),
            Format::Json => {
                let mut json = String::new();
                let mut parts = toml.split(" = ").peekable();
                while let Some(part) = parts.next() {
                    if parts.peek().is_none() {
                        return json + part;
                    }
                    let name = part.rfind(|c: char| !c.is_alphanumeric() && c != '_');
                    let (before, name) = part.split_at(name.map_or(0, |at| at + 1));
                    json.push_str(&format!("{before}\"{name}\": "));
                }
                json
            }
        }
    }

    /// An unknown word, with the known ones, and the one that it resembles.
    pub(crate) fn unknown<'n, T>(
        &self,
        node: &Node,
        what: &str,
        word: &str,
        known: impl IntoIterator<Item = &'n str>,
    ) -> Option<T> {
        let _ = self.unknown_in(&node.span, what, word, "", known);
        None
    }

    /// What the name in a node stands for, as the service binds it. `what`: `bound plan`.
    pub(crate) fn bound<T: Clone>(
        &self,
        node: &Node,
        what: &str,
        bound: &BTreeMap<String, T>,
    ) -> Option<T> {
        let name = self.text(node, &format!("the name of a {what}"))?;
        let known = bound.keys().map(String::as_str);
        let found = bound.get(name).cloned();
        found.or_else(|| self.unknown(node, what, name, known))
    }

    /// The same, with where the word stands, such as " in a rule". The answer is the word that it resembles.
    fn unknown_in<'n>(
        &self,
        span: &Range<usize>,
        what: &str,
        word: &str,
        place: &str,
        known: impl IntoIterator<Item = &'n str>,
    ) -> Option<&'n str> {
        let word: String = word.chars().take(64).collect();
        let mut message = format!("unknown {what} {word:?}{place}");
        // A document of thousands of rules may have as many words to compare each with.
        if self.problems.len() >= MOST {
            return None;
        }
        let known: Vec<&str> = known.into_iter().collect();
        match &known[..] {
            [] => message.push_str("; there is none"),
            [only] => message.push_str(&format!("; expected {only}")),
            _ if known.len() <= 25 => {
                message.push_str(&format!("; expected one of {}", known.join(", ")));
            }
            _ => message.push_str(&format!("; it is none of {}", known.len())),
        }
        let meant = did_you_mean(&word, known);
        if let Some(meant) = meant {
            message.push_str(&format!("; did you mean {meant:?}?"));
        } else if self.side == Side::Edge && (what == "key" || what.starts_with("bound ")) {
            message.push_str("; if services bind it in code, give the rule «at = \"service\"»");
        }
        self.wrong(span, message);
        meant
    }

    /// The fields of a table, which the schema calls `table`. Those that are unknown, missing, or there twice are mistakes.
    pub(crate) fn fields(&self, node: &'a Node, what: &str, table: &str) -> Option<Fields<'a>> {
        let table = table_of(table);
        self.fields_of(node, what, &table.fields, &table.required)
    }

    /// The same of a table with these fields.
    pub(crate) fn fields_of(
        &self,
        node: &'a Node,
        what: &str,
        known: &[&'static str],
        required: &[(&str, String)],
    ) -> Option<Fields<'a>> {
        let Value::Table(entries) = &node.value else {
            // Not that of the schema, which a document may do without.
            let example = known
                .iter()
                .find(|name| !name.starts_with('$'))
                .map_or(String::new(), |name| format!(" with {name}"));
            return self.expected(node, &format!("{what}, a table{example}"));
        };
        let mut fields: Vec<(&Name, &Node)> = Vec::with_capacity(entries.len());
        let mut misspelt = Vec::new();
        for (name, value) in entries {
            if name.text == "include" && what == "a document" {
                let message = "the files of a folder make one document together: put them into a folder and name that one; leave this out";
                self.wrong(&name.span, message);
            } else if !known.contains(&&*name.text) {
                let place = format!(" in {what}");
                let known = known.iter().copied();
                misspelt.extend(self.unknown_in(&name.span, "field", &name.text, &place, known));
            } else if fields.iter().any(|(other, _)| other.text == name.text) {
                let message = format!("{:?} is there twice; remove one", name.text);
                self.wrong(&name.span, message);
            } else {
                fields.push((name, value));
            }
        }
        for (name, example) in required {
            if !misspelt.contains(name) && fields.iter().all(|(field, _)| field.text != *name) {
                let message = format!("{what} has no {name}; add it, such as {example}");
                self.wrong(&node.span, message);
            }
        }
        Some(Fields {
            reader: *self,
            entries: fields,
        })
    }

    pub(crate) fn text<'n>(&self, node: &'n Node, what: &str) -> Option<&'n str> {
        match &node.value {
            Value::Text(text) => Some(text),
            _ => self.expected(node, what),
        }
    }

    /// The name of a header field, such as `example`.
    pub(crate) fn header_name(&self, node: &Node, example: &str) -> Option<HeaderName> {
        let text = self.text(node, "the name of a header")?;
        HeaderName::from_bytes(text.as_bytes()).ok().or_else(|| {
            let message = format!("{text:?} is not the name of a header; write it as {example:?}");
            self.refuse(&node.span, message)
        })
    }

    /// A whole number of at least `least`.
    pub(crate) fn number(&self, node: &Node, what: &str, least: u64, most: u64) -> Option<u64> {
        match node.value {
            Value::Integer(number) => {
                let fits = u64::try_from(number)
                    .ok()
                    .filter(|number| (least..=most).contains(number));
                fits.or_else(|| {
                    let message = format!("{number} is not {what}; write {least} to {most}");
                    self.refuse(&node.span, message)
                })
            }
            _ => self.expected(node, &format!("{what}, a whole number without quotes")),
        }
    }

    /// The nodes of a list. A single value is a list of one.
    pub(crate) fn list_or_one(&self, node: &'a Node) -> &'a [Node] {
        match &node.value {
            Value::List(nodes) => nodes,
            _ => std::slice::from_ref(node),
        }
    }

    pub(crate) fn list(&self, node: &'a Node, what: &str) -> Option<&'a [Node]> {
        match &node.value {
            Value::List(nodes) => Some(nodes),
            _ => {
                let example = match self.format {
                    Format::Toml => format!(" as [[{what}]]"),
                    _ => String::new(),
                };
                self.expected(node, &format!("{what}, a list{example}"))
            }
        }
    }

    /// One of several words.
    pub(crate) fn word<T: Copy>(&self, node: &Node, what: &str, words: &[(&str, T)]) -> Option<T> {
        let names = || words.iter().map(|(name, _)| *name);
        let Value::Text(text) = &node.value else {
            let names: Vec<_> = names().map(|name| format!("\"{name}\"")).collect();
            return self.expected(node, &names.join(" or "));
        };
        let mut words = words.iter();
        let found = words.find_map(|(name, value)| (name == text).then_some(*value));
        found.or_else(|| self.unknown(node, what, text, names()))
    }

    /// A quota as text, whose algorithm or calendar is that of `own` where it names none.
    pub(crate) fn quota(&self, node: &Node, own: Option<&Quota>) -> Option<Quota> {
        let text = self.text(node, "a limit as \"100/min\" or \"gcra 100/min burst 20\"")?;
        let names_one = text
            .trim_start()
            .starts_with(|c: char| c.is_alphabetic() || c == '_');
        let prefix = match own.filter(|own| !names_one && own.has_state()) {
            Some(own) if own.calendar_of().is_some() => "calendar ".to_owned(),
            Some(own) if !is_of_calendar(text) => format!("{} ", own.algorithm()),
            _ => String::new(),
        };
        match format!("{prefix}{text}").parse::<Quota>() {
            Ok(quota) => Some(as_in(own, quota, text)),
            Err(error) => self.wrong_part(node, prefix.len(), &error),
        }
    }

    /// What is wrong with the text of a node, in front of which so many bytes were put.
    fn wrong_part<T>(&self, node: &Node, prefix: usize, error: &ParseQuotaError) -> Option<T> {
        let back = |at: usize| at.saturating_sub(prefix);
        let part = back(error.span().start)..back(error.span().end);
        self.refuse(&node.part(self.text, part), error.message())
    }

    /// A span of time: `50ms`, `1h30min`.
    pub(crate) fn duration(&self, node: &Node) -> Option<Duration> {
        const PREFIX: &str = "fixed_window 1/";
        let text = self.text(node, "a time as \"50ms\", \"10s\" or \"1h30min\"")?;
        match format!("{PREFIX}{text}").parse::<Quota>() {
            Ok(quota) => Some(quota.period()),
            Err(error) => self.wrong_part(node, PREFIX.len(), &error),
        }
    }

    /// Hundredths, as `5` or `"5%"`, in thousandths.
    pub(crate) fn permille(&self, node: &Node, most: u64) -> Option<u64> {
        let written = match &node.value {
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.clone(),
            Value::Text(text) => text.trim().trim_end_matches('%').trim_end().to_owned(),
            _ => String::new(),
        };
        let permille = written.parse::<f64>().ok().map(|percent| percent * 10.0);
        let fits = permille.filter(|permille| {
            // A percentage with one digit behind the point is not always ten times itself.
            let is_whole = (permille - permille.round()).abs() < 1e-6;
            is_whole && (0.0..=most as f64 * 10.0).contains(permille)
        });
        fits.map(|permille| permille.round() as u64).or_else(|| {
            let message = format!("this is not a percentage; write 0 to {most}, as 5 or \"12.5%\"");
            self.refuse(&node.span, message)
        })
    }

    /// A point in time with its zone.
    pub(crate) fn time(&self, node: &Node) -> Option<Timestamp> {
        let text = match &node.value {
            Value::Text(text) | Value::Time(text) => text,
            _ => return self.expected(node, "a time as 2026-12-01T00:00:00Z"),
        };
        text.parse::<Timestamp>().ok().or_else(|| {
            let text: String = text.chars().take(40).collect();
            let message =
                format!("{text:?} is no time with its zone; write it as 2026-12-01T00:00:00Z");
            self.refuse(&node.span, message)
        })
    }

    /// Until when an entry is in force, for ever where it does not say, and why.
    pub(crate) fn term(&self, fields: &Fields<'_>) -> Option<Term> {
        let reason = fields.text("reason", "the reason as text").map(Into::into);
        let until = match fields.get("until") {
            None => Tick::MAX,
            // Before 1970 it has expired.
            Some(node) => Tick::try_from(self.time(node)?.as_microsecond()).unwrap_or(0),
        };
        Some(Term { until, reason })
    }
}

/// Reads what is no part of a text.
///
/// # Errors
///
/// What is wrong with it.
pub(crate) fn read_alone<T>(read: impl FnOnce(Reader<'_>) -> Option<T>) -> Result<T, String> {
    let (problems, bindings) = (Problems::default(), Bindings::default());
    let read = read(Reader::new("", Format::Json, &problems, &bindings));
    match read.filter(|_| problems.is_empty()) {
        Some(read) => Ok(read),
        None => Err(problems.messages()),
    }
}

/// A quota with what its text leaves to that of its rule: the number of sub-buckets, or the zone and the first day.
fn as_in(own: Option<&Quota>, quota: Quota, text: &str) -> Quota {
    let Some(own) = own.filter(|own| own.algorithm() == quota.algorithm()) else {
        return quota;
    };
    match (own.calendar_of(), quota.calendar_of()) {
        (Some(own), Some(of_text)) if own.unit() == of_text.unit() => {
            match text.trim_start().starts_with(|c: char| c.is_ascii_digit()) && !names_days(text) {
                true => Quota::in_calendar(quota.limit(), own),
                false => quota,
            }
        }
        _ if own.bucket_count() > 0 => quota.buckets(own.bucket_count()),
        _ => quota,
    }
}

/// Whether the text of a quota of a calendar has a zone or a first day, behind its unit.
fn names_days(text: &str) -> bool {
    let unit = text.split_once('/').map_or("", |(_, unit)| unit);
    unit.split_whitespace().nth(1).is_some()
}

/// Whether a text without an algorithm is of a calendar, right or wrong: then it reads the same with that word in front.
fn is_of_calendar(text: &str) -> bool {
    let read = |text: &str| {
        text.parse::<Quota>()
            .map_err(|wrong| wrong.message().to_owned())
    };
    read(text) == read(&format!("calendar {text}"))
}

impl<'a> Fields<'a> {
    pub(crate) fn get(&self, name: &str) -> Option<&'a Node> {
        let found = self.entries.iter().find(|(field, _)| field.text == name);
        found.map(|(_, node)| *node)
    }

    /// The nodes of a list, or a single one, if the field is there.
    pub(crate) fn list(&self, name: &str) -> &'a [Node] {
        let node = self.get(name);
        node.map_or(&[], |node| self.reader.list_or_one(node))
    }

    /// What a field says, if it is there and right.
    pub(crate) fn read<T>(
        &self,
        name: &str,
        read: impl FnOnce(&'a Node) -> Option<T>,
    ) -> Option<T> {
        self.get(name).and_then(read)
    }

    /// The fields of a field that is a table, which the schema calls so too.
    pub(crate) fn table(&self, name: &str, what: &str) -> Option<Self> {
        self.read(name, |node| self.reader.fields(node, what, name))
    }

    pub(crate) fn text(&self, name: &str, what: &str) -> Option<&'a str> {
        self.read(name, |node| self.reader.text(node, what))
    }

    pub(crate) fn number(&self, name: &str, what: &str, least: u64, most: u64) -> Option<u64> {
        self.read(name, |node| self.reader.number(node, what, least, most))
    }

    pub(crate) fn duration(&self, name: &str) -> Option<Duration> {
        self.read(name, |node| self.reader.duration(node))
    }

    pub(crate) fn header(&self, name: &str, example: &str) -> Option<HeaderName> {
        self.read(name, |node| self.reader.header_name(node, example))
    }

    /// Whether a field is there and true.
    pub(crate) fn is(&self, name: &str) -> bool {
        let boolean = self.read(name, |node| match node.value {
            Value::Bool(boolean) => Some(boolean),
            _ => (self.reader).expected(node, "true or false, without quotes"),
        });
        boolean == Some(true)
    }

    /// Notes what is wrong with a field, if it is there.
    pub(crate) fn wrong(&self, name: &str, message: impl Into<String>) {
        if let Some(node) = self.get(name) {
            self.reader.wrong(&node.span, message);
        }
    }
}
