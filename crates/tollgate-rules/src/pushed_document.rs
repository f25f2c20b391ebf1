//! A document that is pushed: one text, which all versions read, without the keys of clients.

use std::collections::HashSet;

use tollgate::key::KeyBuf;

use crate::{
    bindings::Bindings,
    document_error::DocumentError,
    entry::Client,
    node::{Node, Value, table},
    operator_entries::hash_value,
    rule_document::RuleDocument,
    rule_text::RuleText,
};

/// The tables of a document, whatever texts they are in.
const TABLES: [&str; 6] = [
    "client_ip",
    "shed",
    "rules",
    "groups",
    "overrides",
    "switches",
];

/// The text of a document in JSON. Clients are named by their hash, and of several overrides for one client the last one is left, which
/// counts.
///
/// # Errors
///
/// All that is wrong with it.
pub(crate) fn pushed_text(
    text: &RuleText,
    bindings: &Bindings,
    hash_key: impl Fn(&str, &KeyBuf) -> u128,
) -> Result<String, DocumentError> {
    let (document, trees) = text.read(bindings)?;
    let mut fields = vec![("version", Value::Integer(1))];
    for name in TABLES {
        let of_texts = trees.iter().filter_map(|tree| tree.get(name));
        let value = of_texts
            .map(|node| node.value.clone())
            .reduce(|all, more| match (all, more) {
                (Value::List(mut all), Value::List(more)) => {
                    all.extend(more);
                    Value::List(all)
                }
                // The others are there once.
                (all, _) => all,
            });
        match value {
            Some(Value::List(nodes)) if name == "overrides" => {
                let nodes = hashed(nodes, &document, &hash_key);
                fields.push((name, Value::List(nodes)));
            }
            value => fields.extend(value.map(|value| (name, value))),
        }
    }
    fields.retain(|(_, value)| !matches!(value, Value::List(nodes) if nodes.is_empty()));
    Ok(table(fields).json_text())
}

/// The overrides of a document that was read, by rule.
fn hashed(
    mut nodes: Vec<Node>,
    document: &RuleDocument,
    hash_key: &impl Fn(&str, &KeyBuf) -> u128,
) -> Vec<Node> {
    let by_name = document.by_name();
    // As those of the document are sorted.
    nodes.sort_by_key(|node| by_name.get(node.text_of("rule")?).copied());
    let mut seen = HashSet::new();
    let both = nodes.into_iter().zip(&document.overrides).rev();
    let hashed = both.filter_map(|(mut node, entry)| {
        let hash = match &entry.client {
            Client::Key(key) => hash_key(&document.rules[entry.rule].name, key.as_ref()),
            Client::Hash(hash) => *hash,
        };
        if let Value::Table(fields) = &mut node.value {
            let key = fields.iter_mut().find(|(name, _)| name.text == "key");
            key?.1.value = hash_value(hash);
        }
        seen.insert((entry.rule, hash)).then_some(node)
    });
    let mut hashed: Vec<Node> = hashed.collect();
    hashed.reverse();
    hashed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Format;

    #[test]
    fn every_table_of_a_document_is_pushed_and_each_client_once() {
        let text = "\
version = 1
client_ip = { header = 'x-forwarded-for', hops = 1 }
rules = [
  { name = 'b', limit = '1/s', by = 'header:x-api-key', when = { path = '/a' } },
  { name = 'a', limit = '1/s', by = 'header:x-api-key' },
]
groups = [{ name = 'both', rules = ['a', 'b'] }]
overrides = [{ rule = 'a', key = 'acme', limit = '2/s' }, { rule = 'b', key = 'k', limit = '3/s' }, { rule = 'a', key = 'acme', limit = '4/s' }]
";
        let more = "version = 1\nswitches = [{ rules = '*', limit = '50%' }]\n\
            overrides = [{ rule = 'b', key = 'l', limit = '5/s' }]\n";
        let text = RuleText::new(text, Format::Toml).and(RuleText::new(more, Format::Toml));
        let length = |_: &str, key: &KeyBuf| key.as_bytes().len() as u128;
        let pushed = pushed_text(&text, &Bindings::new(), length).expect("a right document");
        let pushed = RuleText::new(pushed, Format::Json);
        let mut secret = Bindings::new();
        secret.hash_key = Some(std::sync::Arc::new(length));
        let (document, trees) = pushed.read(&secret).expect("a right document");
        let tables = TABLES.map(|name| trees[0].get(name).is_some());
        assert_eq!(tables, [true, false, true, true, true, true]);
        let limits = document.overrides.iter().map(|it| it.quota.limit());
        // Keys of one length have one hash here.
        assert_eq!(limits.collect::<Vec<_>>(), [5, 4]);
    }
}
