//! A tree as JSON, which every version reads.

use std::fmt::Write;

use crate::node::{Node, Value};

/// The text of a document, with each entry of its lists on a line. What the syntaxes write in their own ways is text there: times, and
/// numbers that are not whole.
pub(crate) fn json_text(document: &Node) -> String {
    let Value::Table(fields) = &document.value else {
        return one_line(&document.value);
    };
    let lines = |entries: &[Node]| {
        let lines = entries
            .iter()
            .map(|entry| format!("\n    {}", one_line(&entry.value)));
        lines.collect::<Vec<_>>().join(",")
    };
    let fields = fields.iter().map(|(name, node)| {
        let value = match &node.value {
            Value::List(entries) if !entries.is_empty() => format!("[{}\n  ]", lines(entries)),
            value => one_line(value),
        };
        format!("\n  \"{}\": {value}", name.text)
    });
    format!("{{{}\n}}\n", fields.collect::<Vec<_>>().join(","))
}

/// A value on one line.
pub(crate) fn one_line(value: &Value) -> String {
    let mut out = String::new();
    write(&mut out, value);
    out
}

fn write(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(boolean) => out.push_str(if *boolean { "true" } else { "false" }),
        Value::Integer(number) => out.push_str(&number.to_string()),
        Value::Float(text) | Value::Text(text) | Value::Time(text) => write_text(out, text),
        Value::List(nodes) => {
            out.push('[');
            for (index, node) in nodes.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                write(out, &node.value);
            }
            out.push(']');
        }
        Value::Table(fields) => {
            out.push('{');
            for (index, (name, node)) in fields.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                write_text(out, &name.text);
                out.push_str(": ");
                write(out, &node.value);
            }
            out.push('}');
        }
    }
}

fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() || c == '\u{feff}' || ('\u{2028}'..='\u{2029}').contains(&c) => {
                // These have four digits.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{json_tree, node::Name, problems::Problems, toml_tree};

    fn without_places(node: &Node) -> Value {
        let bare = |node: &Node| Node {
            span: 0..0,
            value: without_places(node),
        };
        match &node.value {
            Value::List(nodes) => Value::List(nodes.iter().map(bare).collect()),
            Value::Table(fields) => {
                let fields = fields.iter().map(|(name, node)| {
                    let name = Name {
                        span: 0..0,
                        text: name.text.clone(),
                    };
                    (name, bare(node))
                });
                Value::Table(fields.collect())
            }
            Value::Float(text) | Value::Time(text) => Value::Text(text.clone()),
            other => other.clone(),
        }
    }

    #[test]
    fn a_tree_is_read_again_as_it_was() {
        let toml = concat!(
            "a = \"quote\\\" \\\\ \\u0001\\u2028ü\"\n",
            "b = [1, -2, 2.5, true]\n",
            "c = { d = { e = [{ f = [] }, {}] } }\n",
            "t = 2030-12-01T00:00:00Z\n",
            "[[x]]\ny = 1\n[[x]]\ny = { z = '' }\n",
        );
        let problems = Problems::default();
        let tree = toml_tree::parse(toml, &problems);
        let json = json_text(&tree);
        let again = json_tree::parse(&json, &problems);
        assert!(problems.is_empty(), "{json}");
        assert_eq!(without_places(&tree), without_places(&again), "{json}");
    }
}
