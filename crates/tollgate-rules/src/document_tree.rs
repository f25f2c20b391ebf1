//! The tables of a document, to be written as one text.

use crate::{
    json_text::json_text,
    node::{Name, Node, Value},
};

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

/// A table that was not read from a text.
pub(crate) fn table<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Node {
    let fields = fields.into_iter().map(|(name, value)| {
        let name = Name {
            span: 0..0,
            text: name.to_owned(),
        };
        (name, Node { span: 0..0, value })
    });
    Node {
        span: 0..0,
        value: Value::Table(fields.collect()),
    }
}
