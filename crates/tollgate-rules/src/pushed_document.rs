//! A document that is pushed: without the keys of clients.

use std::collections::{HashMap, HashSet};

use tollgate::KeyBuf;

use crate::{
    bindings::Bindings,
    bindings::Side,
    document_error::DocumentError,
    format::Format,
    json_text::json_text,
    node::{Node, Value, field, table},
    operator_entry::hash_value,
    problems::Problems,
    reader::Reader,
    rule_document::RuleDocument,
    rule_entry::RuleEntry,
    rule_text::RuleText,
};

/// A document, and the lists that it was read from.
pub(crate) struct PushedDocument {
    pub(crate) document: RuleDocument,
    pub(crate) lists: DocumentTree,
}

impl PushedDocument {
    /// Reads a document, and its lists.
    ///
    /// # Errors
    ///
    /// All that is wrong with it.
    pub(crate) fn read(text: &RuleText, bindings: &Bindings) -> Result<Self, DocumentError> {
        let (document, trees) = text.read(bindings)?;
        let mut lists = DocumentTree::default();
        for tree in trees {
            let Value::Table(fields) = tree.value else {
                continue;
            };
            for (name, node) in fields {
                let whole = match &*name.text {
                    "client_ip" => Some(&mut lists.client_ip),
                    "shed" => Some(&mut lists.shed),
                    _ => None,
                };
                if let Some(whole) = whole {
                    *whole = Some(node);
                    continue;
                }
                let list = match &*name.text {
                    "rules" => &mut lists.rules,
                    "groups" => &mut lists.groups,
                    "overrides" => &mut lists.overrides,
                    "switches" => &mut lists.switches,
                    _ => continue,
                };
                if let Value::List(nodes) = node.value {
                    list.extend(nodes);
                }
            }
        }
        Ok(Self { document, lists })
    }

    /// Replaces the keys of clients by their hashes.
    pub(crate) fn hash_keys(&mut self, hash_key: impl Fn(&str, &KeyBuf) -> u128) {
        let rules = self.document.entries.rules.iter();
        let rules: HashMap<&str, &RuleEntry> =
            rules.map(|rule| (&*rule.name.value, rule)).collect();
        let problems = Problems::default();
        let reader = Reader {
            text: "",
            format: Format::Json,
            problems: &problems,
            side: Side::default(),
        };
        for node in &mut self.lists.overrides {
            let Value::Table(fields) = &mut node.value else {
                continue;
            };
            let rule = fields.iter().find_map(|(name, node)| match &node.value {
                Value::Text(rule) if name.text == "rule" => rules.get(&**rule),
                _ => None,
            });
            let key = fields.iter_mut().find(|(name, _)| name.text == "key");
            let (Some(rule), Some((_, key))) = (rule, key) else {
                continue;
            };
            if matches!(key.value, Value::Table(_)) {
                continue;
            }
            // The document was read with it.
            let name = &rule.name.value;
            let Some(of_client) = rule.key.of_text(reader, key, name) else {
                continue;
            };
            let hash = hash_key(name, of_client.as_ref());
            key.value = hash_value(hash);
        }
        self.drop_repeated();
    }

    /// If there are several overrides for one client, the last one counts.
    fn drop_repeated(&mut self) {
        let mut seen = HashSet::new();
        let mut kept: Vec<Node> = std::mem::take(&mut self.lists.overrides);
        kept.reverse();
        kept.retain(|node| {
            let hash = hash_of(node);
            let (Some(Value::Text(rule)), Some(Value::Text(hash))) = (field(node, "rule"), hash)
            else {
                return true;
            };
            seen.insert((rule.clone(), hash.to_lowercase()))
        });
        kept.reverse();
        self.lists.overrides = kept;
    }
}

/// The lists of a document, whatever texts they were in.
#[derive(Clone, Default)]
pub(crate) struct DocumentTree {
    /// How addresses are found, if it says so.
    pub(crate) client_ip: Option<Node>,
    /// How load is shed, if it says so.
    pub(crate) shed: Option<Node>,
    pub(crate) rules: Vec<Node>,
    pub(crate) groups: Vec<Node>,
    pub(crate) overrides: Vec<Node>,
    pub(crate) switches: Vec<Node>,
}

impl DocumentTree {
    /// One text, which all versions read.
    pub(crate) fn text(&self) -> String {
        let lists = [
            ("rules", &self.rules),
            ("groups", &self.groups),
            ("overrides", &self.overrides),
            ("switches", &self.switches),
        ];
        let mut fields = vec![("version", Value::Integer(1))];
        for (name, node) in [("client_ip", &self.client_ip), ("shed", &self.shed)] {
            if let Some(node) = node {
                fields.push((name, node.value.clone()));
            }
        }
        for (name, nodes) in lists.into_iter().filter(|(_, nodes)| !nodes.is_empty()) {
            fields.push((name, Value::List(nodes.clone())));
        }
        json_text(&table(fields))
    }
}

/// The hash by which an override names its client.
fn hash_of(node: &Node) -> Option<&Value> {
    match field(node, "key")? {
        Value::Table(fields) => fields.first().map(|(_, hash)| &hash.value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_of_a_document_is_pushed() {
        let text = "\
version = 1
rules = [
  { name = \"a\", limit = \"1/s\", by = \"header:x-api-key\", when = { path = \"/a\" } },
  { name = \"b\", limit = \"1/s\", by = \"header:x-api-key\" },
]
groups = [{ name = \"both\", rules = [\"a\", \"b\"] }]
overrides = [{ rule = \"a\", key = \"acme\", limit = \"2/s\" }]
switches = [{ rules = \"*\", limit = \"50%\" }]
";
        let text = RuleText::new(text, Format::Toml);
        let pushed = PushedDocument::read(&text, &Bindings::new()).expect("a right document");
        let lists = &pushed.lists;
        let lengths = [
            &lists.rules,
            &lists.groups,
            &lists.overrides,
            &lists.switches,
        ]
        .map(Vec::len);
        assert_eq!(lengths, [2, 1, 1, 1]);
    }
}
