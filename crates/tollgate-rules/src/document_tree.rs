//! The tables of a document, to be written as one text.

use std::collections::HashSet;

use crate::{
    format::Format,
    json_text::json_text,
    node::{Name, Node, Value, field},
    rule_text::RuleText,
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
    /// Adds an override. It takes the place of one for the same client.
    pub(crate) fn set_override(&mut self, node: Node) {
        let of = |node: &Node| (field(node, "rule").cloned(), field(node, "key").cloned());
        let own = of(&node);
        self.overrides.retain(|other| of(other) != own);
        self.overrides.push(node);
    }

    /// Adds a switch. It takes the place of one for the same rules.
    pub(crate) fn set_switch(&mut self, node: Node) {
        let own = field(&node, "rules").cloned();
        self.switches
            .retain(|other| field(other, "rules") != own.as_ref());
        self.switches.push(node);
    }

    /// Drops overrides and switches of rules that are not among these.
    pub(crate) fn retain_rules(&mut self, known: &HashSet<&str>) {
        let has_rule = |node: &Node, field: &str| {
            match &node.value {
            Value::Table(fields) => fields.iter().any(|(name, node)| {
                name.text == field
                    && matches!(&node.value, Value::Text(rule) if rule == "*" || known.contains(&**rule))
            }),
            _ => false,
        }
        };
        self.overrides.retain(|node| has_rule(node, "rule"));
        self.switches.retain(|node| has_rule(node, "rules"));
    }

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

    /// The same as a text to read.
    pub(crate) fn rule_text(&self, origin: &str) -> RuleText {
        RuleText::named(origin, self.text(), Format::Json)
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
