//! Putting the tables of all texts of a document together.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    path::PathBuf,
};

use tollgate::key_list::KeyList;

use crate::{
    bindings::Bindings,
    document_error::{DocumentError, HiddenLines, line_of},
    document_tables,
    format::Format,
    node::{MOST, Node, Problems, Value},
    operator_entries::EntryKind,
    reader::{Item, Reader},
    rule_document::RuleDocument,
    rule_entry::RuleEntry,
};

/// One of the texts of a document.
#[derive(Clone, Hash)]
pub(crate) struct OneText {
    /// The name that errors begin with: the path of a file.
    pub(crate) origin: String,
    pub(crate) format: Format,
    pub(crate) text: String,
    /// The folder of a file, which may name the files of lists.
    pub(crate) folder: Option<PathBuf>,
}

impl OneText {
    /// A text that is no file.
    pub(crate) fn new(origin: impl Into<String>, text: impl Into<String>, format: Format) -> Self {
        Self {
            origin: origin.into(),
            format,
            text: text.into(),
            folder: None,
        }
    }
}

/// The most rules of a group: a rule is compared with all others, and a request may be with all of them.
const MOST_IN_GROUP: usize = 1_000;

/// The most bytes of a text.
const MOST_BYTES: usize = 64 << 20;

/// A text that was parsed.
struct Part<'a> {
    text: &'a OneText,
    root: Node,
    /// Whether the tree is all that the text says.
    is_whole: bool,
    problems: Problems,
}

/// Reads the texts of a document: what they say together, and the tree of each.
///
/// # Errors
///
/// All that is wrong with them.
pub(crate) fn assemble(
    texts: &[OneText],
    bindings: &Bindings,
) -> Result<(RuleDocument, Vec<Node>), DocumentError> {
    if let Some(long) = texts.iter().find(|text| text.text.len() > MOST_BYTES) {
        let bytes = long.text.len();
        let message = format!("a document of {bytes} bytes is above {MOST_BYTES}");
        return Err(DocumentError::of_whole(&long.origin, message));
    }
    let parts: Vec<Part<'_>> = texts.iter().map(Part::parse).collect();
    let mut document = RuleDocument {
        hash_key: bindings.hash_key.clone(),
        ..RuleDocument::default()
    };
    let mut bindings = Cow::Borrowed(bindings);
    read_client_ip(&parts, &mut document, &mut bindings);
    read_lists(&parts, &mut document, &mut bindings);
    let assembly = Assembly {
        parts: &parts,
        bindings: &bindings,
        document,
        by_name: HashMap::new(),
        wrong_names: HashSet::new(),
        // What could be read of a text with wrong syntax says nothing of the rest.
        has_nameless: parts.iter().any(|part| !part.is_whole),
        group_of: HashMap::new(),
    };
    let document = assembly.read();
    let mut wrong = DocumentError::none();
    let mut roots = Vec::with_capacity(parts.len());
    for part in parts {
        if !part.problems.is_empty() {
            let OneText { origin, text, .. } = part.text;
            let hidden = match part.is_whole {
                true => HiddenLines::of_tree(&part.root),
                false => HiddenLines::of_text(text, part.text.format),
            };
            wrong.add(origin, text, &part.problems.into_sorted(), &hidden);
        }
        roots.push(part.root);
    }
    match wrong.mistakes() {
        [] => Ok((document, roots)),
        _ => Err(wrong),
    }
}

impl<'a> Part<'a> {
    fn parse(text: &'a OneText) -> Self {
        let problems = Problems::default();
        Self {
            root: text.format.parse(&text.text, &problems),
            is_whole: problems.is_empty(),
            text,
            problems,
        }
    }

    fn item<'r>(&'r self, bindings: &'r Bindings, node: &'r Node) -> Item<'r> {
        let OneText { text, format, .. } = self.text;
        Reader::new(text, *format, &self.problems, bindings).item(node)
    }

    /// A field of the document, if the text could be read as a whole.
    fn get(&self, name: &str) -> Option<&Node> {
        self.root.get(name).filter(|_| self.is_whole)
    }
}

/// Reads how addresses are found, which rules of all texts have to know.
fn read_client_ip(
    parts: &[Part<'_>],
    document: &mut RuleDocument,
    bindings: &mut Cow<'_, Bindings>,
) {
    let is_in_code = bindings.client_ip.is_some() && !bindings.is_of_services();
    let mut said_in: Option<&str> = None;
    let saying = (parts.iter()).filter_map(|part| Some((part, part.get("client_ip")?)));
    for (part, node) in saying {
        let item = part.item(bindings, node);
        if let Some(other) = said_in.replace(&part.text.origin) {
            item.wrong(format!(
                "client_ip is for all rules, and is in {other} already; remove one"
            ));
        } else if is_in_code {
            item.wrong("the service says in code how addresses are found, by Bindings::client_ip; remove one of them");
        } else {
            let client_ip = document_tables::read_client_ip(item);
            let said = &mut document.said;
            said.insert("client_ip".to_owned(), item.value().to_string());
            if bindings.client_ip.is_none() {
                bindings.to_mut().client_ip = client_ip;
            }
        }
    }
}

/// Reads the lists whose files are named, which rules of all texts may ask.
fn read_lists(parts: &[Part<'_>], document: &mut RuleDocument, bindings: &mut Cow<'_, Bindings>) {
    let saying = (parts.iter()).filter_map(|part| Some((part, part.get("lists")?)));
    for (part, node) in saying {
        let Value::Table(lists) = &node.value else {
            let what = "lists by their names, as «lists.partners = { file = \"partners.txt\" }»";
            part.item(bindings, node).expected::<()>(what);
            continue;
        };
        let said = document.said.entry("lists".to_owned()).or_default();
        said.push_str(&node.value.to_string());
        for (name, node) in lists {
            let folder = part.text.folder.as_deref();
            let list = document_tables::read_list(part.item(bindings, node), name, folder);
            // Rules that ask for one that is wrong are no further mistakes.
            let unread = || KeyList::new(&*name.text);
            let known = list.as_ref().map_or_else(unread, |it| it.list().clone());
            let lists = &mut bindings.to_mut().lists;
            lists.entry(name.text.clone()).or_insert(known);
            document.lists.extend(list);
        }
    }
}

/// Puts the rules of all texts together.
struct Assembly<'a> {
    parts: &'a [Part<'a>],
    bindings: &'a Bindings,
    /// What was read so far.
    document: RuleDocument,
    /// By its name, the index of a rule, the text that defines it, and the byte of that where its name begins.
    by_name: HashMap<&'a str, (usize, &'a OneText, usize)>,
    /// Rules that are wrong. Other parts of the document may still name them.
    wrong_names: HashSet<&'a str>,
    /// Whether a rule has no name that can be read: it could be any.
    has_nameless: bool,
    /// By rule of a group, the name of that.
    group_of: HashMap<usize, &'a str>,
}

impl<'a> Assembly<'a> {
    fn read(mut self) -> RuleDocument {
        let mut all = Vec::new();
        for part in self.parts.iter().filter(|part| part.is_whole) {
            let root = part.item(self.bindings, &part.root);
            let Some(fields) = root.fields("a document", "") else {
                continue;
            };
            fields.read("version", |version| match version.value() {
                Value::Integer(1) => Some(()),
                Value::Integer(other) => version.refuse(format!(
                    "there is no version {other} of the format; write «version = 1»"
                )),
                _ => version.expected("a version, a whole number without quotes"),
            });
            let schema = "where the schema is, as \"./limits.schema.json\"";
            fields.text("$schema", schema);
            if self.document.shed.is_some() {
                let message =
                    "shed is for the whole service, and is in another text already; remove one";
                fields.wrong("shed", message);
            } else if let Some(shed) = fields.get("shed") {
                let said = &mut self.document.said;
                said.insert("shed".to_owned(), shed.value().to_string());
                let read = document_tables::read_shed(shed);
                self.document.shed = read.map(|_| shed.node.clone());
            }
            for rule in fields.items("rules") {
                self.add_rule(part.text, rule);
            }
            all.push(["groups", "overrides", "switches"].map(|list| fields.items(list)));
        }
        let is_fine = self.parts.iter().all(|part| part.problems.is_empty());
        if let Some(first) = self.parts.first().filter(|_| is_fine)
            && self.document.rules.is_empty()
        {
            let message = "there is no rule; add one with name, limit and by";
            first.problems.add(0..0, message);
        }
        for [groups, overrides, switches] in all {
            for group in groups {
                self.add_group(group);
            }
            let kinds = [EntryKind::Override, EntryKind::Switch].into_iter();
            for (kind, entries) in kinds.zip([overrides, switches]) {
                for entry in entries {
                    let named = |rule: Item<'_>| self.named(rule);
                    if let Some(entry) = self.document.read_entry(kind, entry, named) {
                        self.document.add(entry, None);
                    }
                }
            }
        }
        self.document
    }

    fn add_rule(&mut self, text: &'a OneText, item: Item<'a>) {
        let (reader, node) = (item.reader, item.node);
        let named = node.get("name").zip(node.text_of("name"));
        let (Some(rule), Some((at, name))) = (RuleEntry::read(item), named) else {
            // It cannot be used for another reason.
            self.has_nameless |= named.is_none();
            return self.wrong_names.extend(named.map(|(_, name)| name));
        };
        if let Some((_, text, before)) = self.by_name.get(name) {
            // For those that are shown: it takes a look at the text before it.
            let line = match reader.problems.len() {
                0..MOST => format!(":{}", line_of(text.text.as_bytes(), *before)),
                _ => String::new(),
            };
            let origin = &text.origin;
            let message = format!(
                "there is a rule {name:?} already, in {origin}{line}; give each a name of its own"
            );
            return reader.wrong(&at.span, message);
        }
        let index = self.document.rules.len();
        self.by_name.insert(name, (index, text, at.span.start));
        self.document.rules.push(rule);
    }

    /// The index of the rule with this name.
    fn named(&self, item: Item<'_>) -> Option<usize> {
        let name = item.text("the name of a rule")?;
        let found = self.by_name.get(name).map(|(index, ..)| *index);
        // It may be one that is wrong itself.
        let may_be = self.has_nameless || self.wrong_names.contains(name);
        match found {
            None if !may_be => item.unknown("rule", name, self.document.names()),
            found => found,
        }
    }

    fn add_group(&mut self, item: Item<'a>) -> Option<()> {
        let fields = item.fields("a group", "group")?;
        let name = fields.text("name", "the name of the group")?;
        let names = fields.get("rules")?;
        let said = &mut self.document.said;
        said.insert(format!("group {name}"), names.value().to_string());
        let rules = names.list_or_one();
        if rules.len() > MOST_IN_GROUP {
            return item.refuse(format!(
                "a group has at most {MOST_IN_GROUP} rules, and this one has {}; make several, each of rules that match the same requests",
                rules.len()
            ));
        }
        let mut members: Vec<(usize, Item<'_>)> = Vec::new();
        for item in rules {
            let Some(rule) = self.named(item) else {
                continue;
            };
            if self.document.rules[rule].key.is_of_handler() {
                item.wrong("its handler decides when this rule counts; remove it from the group");
            } else if let Some(other) = self.group_of.insert(rule, name) {
                item.wrong(format!(
                    "this rule is in group {other:?} already; a rule is in one group"
                ));
            } else {
                members.push((rule, item));
            }
        }
        // The most specific first; of equals, one that names methods.
        let rules = &mut self.document.rules;
        members.sort_by(|(one, _), (other, _)| {
            let [one, other] = [one, other].map(|it| &rules[*it].condition);
            other.cmp_specificity(one)
        });
        for (index, (rule, item)) in members.iter().enumerate() {
            let before = members[..index].iter().map(|(other, _)| *other);
            let condition = &rules[*rule].condition;
            let is_tied = |other: &usize| condition.is_tied(&rules[*other].condition);
            if let Some(tied) = before.clone().find(is_tied) {
                item.wrong(format!(
                    "it is not more or less specific than {:?}, so that either could count a request; give them other paths \
                     or methods",
                    rules[tied].name
                ));
            }
            rules[*rule].behind = before.collect();
        }
        Some(())
    }
}
