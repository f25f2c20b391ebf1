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

/// What messages of other crates call in the words of code, and how a document has it.
const IN_DOCUMENTS: [(&str, &str); 15] = [
    (
        "for_each([MINUTE, 10 * MINUTE, HOUR])",
        "«for = [\"1min\", \"10min\", \"1h\"]»",
    ),
    (
        "[MINUTE, 10 * MINUTE, HOUR]",
        "[\"1min\", \"10min\", \"1h\"]",
    ),
    ("5 * SECOND", "\"5s\""),
    ("LeaseShare::percent(10)", "\"10%\""),
    (
        "Quota::fixed_window(10_000, DAY)",
        "\"fixed_window 10000/d\"",
    ),
    ("Quota::sliding_log(5, MINUTE)", "\"sliding_log 5/min\""),
    ("Quota::none(), in text ", ""),
    ("Quota::", ""),
    (": Rule::new with another name", ""),
    ("OnStoreError::Deny", "\"deny\""),
    ("Consistency::Exact", "\"exact\""),
    ("Consistency::Eventual", "eventual"),
    ("Consistency::Leased", "leased"),
    ("(..)", ""),
    ("()", ""),
];

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

/// A node of a document, and its reader, which notes what is wrong with it.
#[derive(Clone, Copy)]
pub(crate) struct Item<'a> {
    pub(crate) reader: Reader<'a>,
    pub(crate) node: &'a Node,
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

    pub(crate) fn item(self, node: &'a Node) -> Item<'a> {
        Item { reader: self, node }
    }

    /// Notes a mistake. An example of TOML in its message, `«wait = "5s"»`, is shown in the syntax of the document.
    pub(crate) fn wrong(&self, span: &Range<usize>, message: impl Into<String>) {
        let of_code = message.into();
        let mut is_escaped = false;
        let is_quote = |c| {
            let is_quote = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            is_quote
        };
        // What is quoted is so in the document.
        let parts = of_code.split(is_quote).enumerate().map(|(index, part)| {
            let words = IN_DOCUMENTS.iter().filter(|_| index % 2 == 0);
            words.fold(part.to_owned(), |part, (code, written)| {
                part.replace(code, written)
            })
        });
        let message = parts.collect::<Vec<_>>().join("\"");
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

    /// An example of TOML in the syntax of the document: `wait = "5s"` is `wait: "5s"` in YAML.
    fn example(&self, toml: &str) -> String {
        match self.format {
            Format::Toml => toml.to_owned(),
            Format::Yaml => toml.replace(" = ", ": "),
            Format::Json => {
                let mut parts = toml.rsplit(" = ");
                let last = parts.next().unwrap_or_default().to_owned();
                parts.fold(last, |behind, part| {
                    let name = part.rfind(|c: char| !c.is_alphanumeric() && c != '_');
                    let (before, name) = part.split_at(name.map_or(0, |at| at + 1));
                    format!("{before}\"{name}\": {behind}")
                })
            }
        }
    }

    /// Notes an unknown word, with where it stands, such as " in a rule", and the known ones. The answer is the one that it resembles.
    fn unknown<'n>(
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
}

impl<'a> Item<'a> {
    pub(crate) fn value(self) -> &'a Value {
        &self.node.value
    }

    /// Notes a mistake.
    pub(crate) fn wrong(self, message: impl Into<String>) {
        self.reader.wrong(&self.node.span, message);
    }

    /// The same, where nothing can be read then.
    pub(crate) fn refuse<T>(self, message: impl Into<String>) -> Option<T> {
        self.reader.refuse(&self.node.span, message)
    }

    /// What was made, or else why not, as a mistake.
    pub(crate) fn or_refuse<T>(self, made: Result<T, impl ToString>) -> Option<T> {
        made.map_err(|wrong| self.wrong(wrong.to_string())).ok()
    }

    /// The same of a part of its text.
    pub(crate) fn refuse_part<T>(
        self,
        part: Range<usize>,
        message: impl Into<String>,
    ) -> Option<T> {
        let part = self.node.part(self.reader.text, part);
        self.reader.refuse(&part, message)
    }

    pub(crate) fn expected<T>(self, what: &str) -> Option<T> {
        let kind = self.value().kind();
        self.refuse(format!("this is {kind}; write {what}"))
    }

    /// An unknown word, with the known ones, and the one that it resembles.
    pub(crate) fn unknown<'n, T>(
        self,
        what: &str,
        word: &str,
        known: impl IntoIterator<Item = &'n str>,
    ) -> Option<T> {
        let span = &self.node.span;
        let _ = self.reader.unknown(span, what, word, "", known);
        None
    }

    /// What the name stands for, as the service binds it. `what`: `bound plan`.
    pub(crate) fn bound<T: Clone>(self, what: &str, bound: &BTreeMap<String, T>) -> Option<T> {
        let name = self.text(&format!("the name of a {what}"))?;
        let known = bound.keys().map(String::as_str);
        let found = bound.get(name).cloned();
        found.or_else(|| self.unknown(what, name, known))
    }

    /// The fields of a table, which the schema calls `table`. Those that are unknown, missing, or there twice are mistakes.
    pub(crate) fn fields(self, what: &str, table: &str) -> Option<Fields<'a>> {
        let table = table_of(table);
        self.fields_of(what, &table.fields, &table.required)
    }

    /// The same of a table with these fields.
    pub(crate) fn fields_of(
        self,
        what: &str,
        known: &[&'static str],
        required: &[(&str, String)],
    ) -> Option<Fields<'a>> {
        let Value::Table(entries) = self.value() else {
            // Not that of the schema, which a document may do without.
            let example = known
                .iter()
                .find(|name| !name.starts_with('$'))
                .map_or(String::new(), |name| format!(" with {name}"));
            return self.expected(&format!("{what}, a table{example}"));
        };
        let reader = self.reader;
        let mut fields: Vec<(&Name, &Node)> = Vec::with_capacity(entries.len());
        let mut misspelt = Vec::new();
        for (name, value) in entries {
            if name.text == "include" && what == "a document" {
                let message = "the files of a folder make one document together: put them into a folder and name that one; leave this out";
                reader.wrong(&name.span, message);
            } else if !known.contains(&&*name.text) {
                let place = format!(" in {what}");
                let known = known.iter().copied();
                misspelt.extend(reader.unknown(&name.span, "field", &name.text, &place, known));
            } else if fields.iter().any(|(other, _)| other.text == name.text) {
                let message = format!("{:?} is there twice; remove one", name.text);
                reader.wrong(&name.span, message);
            } else {
                fields.push((name, value));
            }
        }
        for (name, example) in required {
            if !misspelt.contains(name) && fields.iter().all(|(field, _)| field.text != *name) {
                self.wrong(format!("{what} has no {name}; add it, such as {example}"));
            }
        }
        Some(Fields {
            reader,
            entries: fields,
        })
    }

    pub(crate) fn text(self, what: &str) -> Option<&'a str> {
        match self.value() {
            Value::Text(text) => Some(text),
            _ => self.expected(what),
        }
    }

    /// The name of a header field, such as `example`.
    pub(crate) fn header_name(self, example: &str) -> Option<HeaderName> {
        let text = self.text("the name of a header")?;
        let wrong = |_| format!("{text:?} is not the name of a header; write it as {example:?}");
        self.or_refuse(HeaderName::from_bytes(text.as_bytes()).map_err(wrong))
    }

    /// A whole number of at least `least`.
    pub(crate) fn number(self, what: &str, least: u64, most: u64) -> Option<u64> {
        let Value::Integer(number) = *self.value() else {
            return self.expected(&format!("{what}, a whole number without quotes"));
        };
        match u64::try_from(number) {
            Ok(number) if (least..=most).contains(&number) => Some(number),
            _ => self.refuse(format!("{number} is not {what}; write {least} to {most}")),
        }
    }

    /// The items of a list. A single value is a list of one.
    pub(crate) fn list_or_one(self) -> impl ExactSizeIterator<Item = Self> + Clone {
        let nodes = match self.value() {
            Value::List(nodes) => nodes,
            _ => std::slice::from_ref(self.node),
        };
        nodes.iter().map(move |node| self.reader.item(node))
    }

    /// One of several words.
    pub(crate) fn word<T: Copy>(self, what: &str, words: &[(&str, T)]) -> Option<T> {
        let names = || words.iter().map(|(name, _)| *name);
        let Value::Text(text) = self.value() else {
            let names: Vec<_> = names().map(|name| format!("\"{name}\"")).collect();
            return self.expected(&names.join(" or "));
        };
        match words.iter().find(|(name, _)| name == text) {
            Some((_, value)) => Some(*value),
            None => self.unknown(what, text, names()),
        }
    }

    /// A quota as text, whose algorithm or calendar is that of `own` where it names none.
    pub(crate) fn quota(self, own: Option<&Quota>) -> Option<Quota> {
        let text = self.text("a limit as \"100/min\" or \"gcra 100/min burst 20\"")?;
        let read = own.map_or_else(|| text.parse(), |own| own.parse_beside(text));
        let refuse = |wrong: ParseQuotaError| self.refuse_part(wrong.span(), wrong.message());
        read.map_or_else(refuse, Some)
    }

    /// A span of time: `50ms`, `1h30min`.
    pub(crate) fn duration(self) -> Option<Duration> {
        let text = self.text("a time as \"50ms\", \"10s\" or \"1h30min\"")?;
        let prefix = "fixed_window 1/";
        match format!("{prefix}{text}").parse::<Quota>() {
            Ok(quota) => Some(quota.period()),
            Err(error) => {
                let back = |at: usize| at.saturating_sub(prefix.len());
                let part = back(error.span().start)..back(error.span().end);
                self.refuse_part(part, error.message())
            }
        }
    }

    /// Hundredths, as `5` or `"5%"`, in thousandths. Who takes no 0 says so elsewhere: `least` is for the message.
    pub(crate) fn permille(self, least: &str, most: u64) -> Option<u64> {
        let written = match self.value() {
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
        let wrong =
            || format!("this is not a percentage; write {least} to {most}, as 5 or \"12.5%\"");
        Some(self.or_refuse(fits.ok_or_else(wrong))?.round() as u64)
    }

    /// A point in time with its zone. Before 1970 it is 0.
    pub(crate) fn time(self) -> Option<Tick> {
        let (Value::Text(text) | Value::Time(text)) = self.value() else {
            return self.expected("a time as 2026-12-01T00:00:00Z");
        };
        let time = text.parse::<Timestamp>().map_err(|_| {
            let text: String = text.chars().take(40).collect();
            format!("{text:?} is no time with its zone; write it as 2026-12-01T00:00:00Z")
        });
        Some(Tick::try_from(self.or_refuse(time)?.as_microsecond()).unwrap_or(0))
    }
}

/// Reads what is no part of a text.
///
/// # Errors
///
/// What is wrong with it.
pub(crate) fn read_alone<T>(
    node: &Node,
    read: impl FnOnce(Item<'_>) -> Option<T>,
) -> Result<T, String> {
    let (problems, bindings) = (Problems::default(), Bindings::default());
    let reader = Reader::new("", Format::Json, &problems, &bindings);
    let read = read(reader.item(node));
    match read.filter(|_| problems.is_empty()) {
        Some(read) => Ok(read),
        None => Err(problems.messages()),
    }
}

impl<'a> Fields<'a> {
    pub(crate) fn get(&self, name: &str) -> Option<Item<'a>> {
        let found = self.entries.iter().find(|(field, _)| field.text == name);
        found.map(|(_, node)| self.reader.item(node))
    }

    /// The items of a list, or a single one, if the field is there.
    pub(crate) fn list(&self, name: &str) -> impl Iterator<Item = Item<'a>> + use<'a> {
        self.get(name).into_iter().flat_map(Item::list_or_one)
    }

    /// The same. A list without items is a mistake.
    pub(crate) fn some_of(&self, name: &str) -> impl Iterator<Item = Item<'a>> + use<'a> {
        let mut items = self.list(name).peekable();
        if items.peek().is_none() {
            let message = format!("{name} is an empty list; give it at least one value");
            self.wrong(name, message);
        }
        items
    }

    /// The items of a list, if the field is there. A single one is none.
    pub(crate) fn items(&self, name: &str) -> impl Iterator<Item = Item<'a>> + use<'a> {
        let list = self.read(name, |item| {
            let example = match self.reader.format {
                Format::Toml => format!(" as [[{name}]]"),
                _ => String::new(),
            };
            match item.value() {
                Value::List(_) => Some(item),
                _ => item.expected(&format!("{name}, a list{example}")),
            }
        });
        list.into_iter().flat_map(Item::list_or_one)
    }

    /// What a field says, if it is there and right.
    pub(crate) fn read<T>(
        &self,
        name: &str,
        read: impl FnOnce(Item<'a>) -> Option<T>,
    ) -> Option<T> {
        self.get(name).and_then(read)
    }

    /// The fields of a field that is a table, which the schema calls so too.
    pub(crate) fn table(&self, name: &str, what: &str) -> Option<Self> {
        self.read(name, |item| item.fields(what, name))
    }

    pub(crate) fn text(&self, name: &str, what: &str) -> Option<&'a str> {
        self.read(name, |item| item.text(what))
    }

    pub(crate) fn number(&self, name: &str, what: &str, least: u64, most: u64) -> Option<u64> {
        self.read(name, |item| item.number(what, least, most))
    }

    pub(crate) fn duration(&self, name: &str) -> Option<Duration> {
        self.read(name, Item::duration)
    }

    pub(crate) fn header(&self, name: &str, example: &str) -> Option<HeaderName> {
        self.read(name, |item| item.header_name(example))
    }

    /// Whether a field is there and true.
    pub(crate) fn is(&self, name: &str) -> bool {
        let boolean = self.read(name, |item| match item.value() {
            Value::Bool(boolean) => Some(*boolean),
            _ => item.expected("true or false, without quotes"),
        });
        boolean == Some(true)
    }

    /// Until when an entry is in force, for ever where it does not say, and why.
    pub(crate) fn term(&self) -> Option<Term> {
        let reason = self.text("reason", "the reason as text").map(Into::into);
        let until = self.get("until").map_or(Some(Tick::MAX), Item::time)?;
        Some(Term { until, reason })
    }

    /// Notes what is wrong with a field, if it is there.
    pub(crate) fn wrong(&self, name: &str, message: impl Into<String>) {
        if let Some(item) = self.get(name) {
            item.wrong(message);
        }
    }
}
