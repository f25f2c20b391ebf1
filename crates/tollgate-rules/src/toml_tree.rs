//! Documents in TOML.

use toml::de::{DeTable, DeValue};

use crate::{
    node::{Name, Node, Value},
    problems::Problems,
};

/// The tree of a document; what could be read of it, where something is wrong.
pub(crate) fn parse(text: &str, problems: &Problems) -> Node {
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        problems.add(span, message(error.message()));
    }
    Node {
        span: 0..text.len(),
        value: self::table(table.get_ref()),
    }
}

/// A sentence of the parser's lines.
fn message(lines: &str) -> String {
    let lines: Vec<&str> = lines.lines().map(str::trim).collect();
    format!("this is not TOML: {}", lines.join("; "))
}

fn table(table: &DeTable<'_>) -> Value {
    let mut entries: Vec<(Name, Node)> = table
        .iter()
        .map(|(name, value)| {
            let text = name.get_ref().clone().into_owned();
            let name = Name {
                span: name.span(),
                text,
            };
            let span = value.span();
            let value = node(value.get_ref());
            (name, Node { span, value })
        })
        .collect();
    entries.sort_by_key(|(name, _)| name.span.start);
    Value::Table(entries)
}

fn node(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::Text(text.clone().into_owned()),
        DeValue::Integer(integer) => {
            match i128::from_str_radix(integer.as_str(), integer.radix()) {
                Ok(integer) => Value::Integer(integer),
                Err(_) => Value::Float(integer.as_str().to_owned()),
            }
        }
        DeValue::Float(float) => Value::Float(float.as_str().to_owned()),
        DeValue::Boolean(boolean) => Value::Bool(*boolean),
        DeValue::Datetime(time) => Value::Time(time.to_string()),
        DeValue::Array(list) => {
            let nodes = list.iter().map(|value| Node {
                span: value.span(),
                value: node(value.get_ref()),
            });
            Value::List(nodes.collect())
        }
        DeValue::Table(entries) => table(entries),
    }
}
