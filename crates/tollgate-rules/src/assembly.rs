//! Putting the tables of all texts of a document together.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    ops::Range,
    path::PathBuf,
    sync::Arc,
};

use tollgate::key_list::KeyList;

use crate::{
    bindings::{Bindings, Side},
    client_address,
    document_error::DocumentError,
    document_lists,
    entries::Entries,
    format::Format,
    hidden_keys::HiddenKeys,
    json_text::one_line,
    json_tree,
    node::{Node, Value, field, field_node, text_field},
    override_entry::Override,
    problems::{Problems, SHOWN},
    reader::Reader,
    rule_entry::RuleEntry,
    shed_entry::ShedEntry,
    switch_entry::Switch,
    toml_tree, yaml_tree,
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

/// The tables of a text, before they are put together.
struct Tables {
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
    parts: &[OneText],
    bindings: &Bindings,
) -> Result<(Entries, Vec<Node>), DocumentError> {
    if let Some(long) = parts.iter().find(|part| part.text.len() > MOST_BYTES) {
        let bytes = long.text.len();
        let message = format!("a document of {bytes} bytes is above {MOST_BYTES}");
        return Err(DocumentError::of_whole(&long.origin, message));
    }
    let tables: Vec<Tables> = parts.iter().map(Tables::parse).collect();
    let entries = Assembly::new(parts, &tables, bindings).entries();
    let mut wrong = DocumentError::none();
    let mut roots = Vec::with_capacity(tables.len());
    for (part, tables) in parts.iter().zip(tables) {
        if !tables.problems.is_empty() {
            // The keys of clients, which errors do not show.
            let keys = match tables.is_whole {
                true => HiddenKeys::of_tree(&tables.root, &part.text, part.format),
                false => HiddenKeys::of_text(&part.text, part.format),
            };
            let problems = tables.problems.into_sorted();
            wrong.add(&part.origin, &part.text, &problems, &keys);
        }
        roots.push(tables.root);
    }
    match wrong.mistakes() {
        [] => Ok((entries, roots)),
        _ => Err(wrong),
    }
}

impl Tables {
    fn parse(part: &OneText) -> Self {
        let problems = Problems::default();
        let root = parse(&part.text, part.format, &problems);
        let is_whole = problems.is_empty();
        Self {
            root,
            is_whole,
            problems,
        }
    }
}

fn parse(text: &str, format: Format, problems: &Problems) -> Node {
    match format {
        Format::Toml => toml_tree::parse(text, problems),
        Format::Yaml => yaml_tree::parse(text, problems),
        Format::Json => json_tree::parse(text, problems),
    }
}

/// Whether a text is a JSON Schema: editors want that of documents next to them.
pub(crate) fn is_schema(text: &str, format: Format) -> bool {
    const META: &str = "json-schema.org/";
    if !text.contains(META) {
        return false;
    }
    let root = parse(text, format, &Problems::default());
    text_field(&root, "$schema").is_some_and(|meta| meta.contains(META))
        && field(&root, "version").is_none()
}

/// Puts the tables of all texts together.
struct Assembly<'a> {
    parts: &'a [OneText],
    tables: &'a [Tables],
    /// With what the document says itself.
    bindings: Cow<'a, Bindings>,
    /// What was read so far.
    entries: Entries,
    /// By rule, the text that defines it.
    defined_in: Vec<usize>,
    by_name: HashMap<String, usize>,
    /// Rules that are wrong. Other parts of the document may still name them.
    wrong_names: HashSet<String>,
    /// Whether a rule has no name that can be read: it could be any.
    has_nameless: bool,
}

impl<'a> Assembly<'a> {
    fn new(parts: &'a [OneText], tables: &'a [Tables], bindings: &'a Bindings) -> Self {
        Self {
            parts,
            tables,
            bindings: Cow::Borrowed(bindings),
            entries: Entries {
                hash_key: bindings.hash_key.clone(),
                denials: Arc::clone(&bindings.denials),
                ..Entries::default()
            },
            defined_in: Vec::new(),
            by_name: HashMap::new(),
            wrong_names: HashSet::new(),
            has_nameless: false,
        }
    }

    fn reader(&self, part: usize) -> Reader<'a> {
        Reader {
            text: &self.parts[part].text,
            format: self.parts[part].format,
            problems: &self.tables[part].problems,
            side: self.bindings.side,
        }
    }

    fn entries(mut self) -> Entries {
        let mut all = Vec::new();
        self.read_client_ip();
        self.read_lists();
        for part in 0..self.parts.len() {
            let reader = self.reader(part);
            let tables = self.tables;
            if !tables[part].is_whole {
                // What could be read of a text with wrong syntax says nothing of the rest.
                self.has_nameless = true;
                continue;
            }
            let Some(fields) = reader.fields(&tables[part].root, "a document", "") else {
                continue;
            };
            if let Some(version) = fields.get("version") {
                if let Some(version) = reader.number(version, "a version", 1, u64::MAX)
                    && version != 1
                {
                    let right = reader.example("version = 1");
                    let message =
                        format!("there is no version {version} of the format; write {right}");
                    let span = fields.get("version").map_or(0..0, |node| node.span.clone());
                    reader.wrong(&span, message);
                }
            } else {
                let right = reader.example("version = 1");
                let message = format!("the version of the format is missing; begin with {right}");
                reader.wrong(&(0..0), message);
            }
            if let Some(node) = fields.get("$schema") {
                reader.text(node, "where the schema is, as \"./limits.schema.json\"");
            }
            if let Some(node) = fields.get("shed") {
                if self.entries.shed.is_some() {
                    reader.wrong(
                        &node.span,
                        "shed is for the whole service, and is in another text already; remove one",
                    );
                } else {
                    self.entries.shed = ShedEntry::read(reader, node);
                }
            }
            let nodes = |name: &str| {
                let node = fields.get(name)?;
                reader.list(node, name)
            };
            for node in nodes("rules").unwrap_or_default() {
                self.add_rule(part, node);
            }
            all.push((part, ["groups", "overrides", "switches"].map(nodes)));
        }
        let is_fine = self.tables.iter().all(|tables| tables.problems.is_empty());
        if self.entries.rules.is_empty() && is_fine {
            let reader = self.reader(0);
            reader.wrong(&(0..0), "there is no rule; add one with name, limit and by");
        }
        let mut behind = vec![Vec::new(); self.entries.rules.len()];
        let mut group_of = HashMap::new();
        for (part, [groups, overrides, switches]) in all {
            for node in groups.unwrap_or_default() {
                self.add_group(part, node, &mut behind, &mut group_of);
            }
            let reader = self.reader(part);
            for node in overrides.unwrap_or_default() {
                let named = |node: &Node| {
                    let rule = self.named(reader, node)?;
                    Some((rule, &self.entries.rules[rule]))
                };
                let has_secret = self.entries.hash_key.is_some();
                let read = Override::read(reader, node, has_secret, named);
                self.entries.overrides.extend(read);
            }
            for node in switches.unwrap_or_default() {
                let named = |node: &Node| self.named(reader, node);
                let read = Switch::read(reader, node, self.entries.rules.len(), named);
                self.entries.switches.extend(read);
            }
        }
        self.entries.behind = behind;
        self.entries.sorted()
    }

    /// A field of a text that could be read as a whole.
    fn field_of(&self, part: usize, name: &str) -> Option<&'a Node> {
        let tables = Some(&self.tables[part]).filter(|tables| tables.is_whole)?;
        field_node(&tables.root, name)
    }

    /// How addresses are found, which rules of all texts have to know.
    fn read_client_ip(&mut self) {
        let mut said_in: Option<&str> = None;
        for part in 0..self.parts.len() {
            let Some(node) = self.field_of(part, "client_ip") else {
                continue;
            };
            let reader = self.reader(part);
            if let Some(other) = said_in {
                let message =
                    format!("client_ip is for all rules, and is in {other} already; remove one");
                reader.wrong(&node.span, message);
                continue;
            }
            said_in = Some(&self.parts[part].origin);
            if self.bindings.says_client_ip() && self.bindings.side == Side::Edge {
                // The table is for the services behind it.
                client_address::read(reader, node);
                continue;
            }
            if self.bindings.says_client_ip() {
                let message = "the service says in code how addresses are found, by Bindings::client_ip; remove one of them";
                reader.wrong(&node.span, message);
                continue;
            }
            let client_ip = client_address::read(reader, node);
            self.entries.client_ip = Some(one_line(&node.value));
            if !self.bindings.peers_are_clients {
                self.bindings.to_mut().set_client_ip(client_ip);
            }
        }
    }

    /// The lists whose files are named, which rules of all texts may ask.
    fn read_lists(&mut self) {
        for (part, text) in self.parts.iter().enumerate() {
            let Some(node) = self.field_of(part, "lists") else {
                continue;
            };
            let reader = self.reader(part);
            let Value::Table(lists) = &node.value else {
                let example = reader.example("lists.partners = { file = \"partners.txt\" }");
                reader.expected(node, &format!("lists by their names, as {example}"));
                continue;
            };
            let said = self.entries.said_of_lists.get_or_insert_default();
            said.push_str(&one_line(&node.value));
            for (name, node) in lists {
                let folder = text.folder.as_deref();
                let list = document_lists::read(reader, name, node, folder, &self.bindings);
                // Rules that ask for one that is wrong are no further mistakes.
                let known = list.as_ref().map(|file| file.list().clone());
                let known = known.unwrap_or_else(|| KeyList::new(&*name.text));
                let lists = &mut self.bindings.to_mut().lists;
                lists.entry(name.text.clone()).or_insert(known);
                self.entries.lists.extend(list);
            }
        }
    }

    fn add_rule(&mut self, part: usize, node: &'a Node) {
        let reader = self.reader(part);
        let Some(rule) = RuleEntry::read(reader, node, &self.bindings) else {
            // It cannot be used for another reason.
            match text_field(node, "name") {
                Some(name) => {
                    self.wrong_names.insert(name.to_owned());
                }
                None => self.has_nameless = true,
            }
            return;
        };
        if let Some(other) = self.by_name.get(&rule.name.value) {
            let origin = &self.parts[self.defined_in[*other]].origin;
            let before = &self.entries.rules[*other].name.span;
            let text = &self.parts[self.defined_in[*other]].text;
            // For those that are shown: it takes a look at the text before it.
            let line = (reader.problems.len() < SHOWN).then(|| {
                let ends = text[..before.start].bytes();
                let ends = ends.filter(|byte| *byte == b'\n');
                format!(":{}", ends.count() + 1)
            });
            let message = format!(
                "there is a rule {:?} already, in {origin}{}; give each a name of its own",
                rule.name.value,
                line.unwrap_or_default()
            );
            reader.wrong(&rule.name.span, message);
            return;
        }
        self.by_name
            .insert(rule.name.value.clone(), self.entries.rules.len());
        self.entries.rules.push(rule);
        self.defined_in.push(part);
    }

    /// The index of the rule that a node names.
    fn named(&self, reader: Reader<'_>, node: &Node) -> Option<usize> {
        let name = reader.text(node, "the name of a rule")?;
        let found = self.by_name.get(name.value).copied();
        let is_wrong = self.wrong_names.contains(name.value);
        if found.is_none() && !is_wrong && !self.has_nameless {
            let known = self.entries.rules.iter().map(|rule| &*rule.name.value);
            reader.unknown(&name.span, "rule", name.value, known);
        }
        found
    }

    fn add_group(
        &self,
        part: usize,
        node: &'a Node,
        behind: &mut [Vec<usize>],
        group_of: &mut HashMap<usize, String>,
    ) {
        let reader = self.reader(part);
        let Some(fields) = reader.fields(node, "a group", "group") else {
            return;
        };
        let name = fields
            .required("name", "\"api\"")
            .and_then(|node| reader.text(node, "the name of the group"));
        let rules = fields.required("rules", "[\"export\", \"everything\"]");
        let (Some(name), Some(rules)) = (name, rules) else {
            return;
        };
        let nodes = reader.list_or_one(rules);
        if nodes.len() > MOST_IN_GROUP {
            let message = format!(
                "a group has at most {MOST_IN_GROUP} rules, and this one has {}; make several, each of rules that match the same requests",
                nodes.len()
            );
            reader.wrong(&node.span, message);
            return;
        }
        let mut members: Vec<(usize, Range<usize>)> = Vec::new();
        for node in nodes {
            let Some(rule) = self.named(reader, node) else {
                continue;
            };
            if self.entries.rules[rule].key.is_of_handler() {
                let message = "its handler decides when this rule counts; remove it from the group";
                reader.wrong(&node.span, message);
                continue;
            }
            match group_of.insert(rule, name.value.to_owned()) {
                None => members.push((rule, node.span.clone())),
                Some(other) => {
                    let message =
                        format!("this rule is in group {other:?} already; a rule is in one group");
                    reader.wrong(&node.span, message);
                }
            }
        }
        // The most specific first; of equals, one that names methods.
        let condition = |rule: usize| &self.entries.rules[rule].condition;
        members.sort_by(|(one, _), (other, _)| condition(*other).cmp_specificity(condition(*one)));
        for (index, (rule, span)) in members.iter().enumerate() {
            let before = &members[..index];
            if let Some((tied, _)) = before.iter().find(|(other, _)| self.is_tied(*rule, *other)) {
                let message = format!(
                    "it is not more or less specific than {:?}, so that either could count a request; give them other paths \
                     or methods",
                    self.entries.rules[*tied].name.value
                );
                reader.wrong(span, message);
            }
            behind[*rule] = before.iter().map(|(other, _)| *other).collect();
        }
    }

    /// Whether two rules match one request, and neither is more specific.
    fn is_tied(&self, one: usize, other: usize) -> bool {
        let [one, other] = [one, other].map(|rule| &self.entries.rules[rule].condition);
        let shares_method = match (&one.methods[..], &other.methods[..]) {
            ([], []) => true,
            ([], _) | (_, []) => false,
            (one, other) => one.iter().any(|method| other.contains(method)),
        };
        let shares_paths = match (&one.path, &other.path) {
            (Some(one), Some(other)) => one.value.matches_same_paths(&other.value),
            (one, other) => one.is_none() && other.is_none(),
        };
        shares_paths && shares_method
    }
}
