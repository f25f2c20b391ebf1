//! A tree as JSON, which every version reads.

use std::fmt::Write;

use crate::node::{Node, Value, hash_of};

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

/// A hash of what a node says, wherever it is.
pub(crate) fn content_of(node: &Node) -> u64 {
    hash_of(one_line(&node.value))
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
    use crate::{json_tree, problems::Problems, toml_tree};

    #[test]
    fn a_tree_is_read_again_as_it_was() {
        let toml = concat!(
            "a = \"quote\\\" \\\\ \\u0001\\u2028ü\"\n",
            "b = [1, -2, 2.5, true]\n",
            "c = { d = { e = [{ f = [] }, {}] } }\n",
            "t = 2030-12-01T00:00:00Z\n",
            "[[x]]\ny = 1\n[[x]]\ny = { z = '' }\n",
        );
        let written = r#"{"a": "quote\" \\ \u0001\u2028ü", "b": [1, -2, "2.5", true], "c": {"d": {"e": [{"f": []}, {}]}}, "t": "2030-12-01T00:00:00Z", "x": [{"y": 1}, {"y": {"z": ""}}]}"#;
        let problems = Problems::default();
        let tree = toml_tree::parse(toml, &problems);
        assert_eq!(one_line(&tree.value), written);
        let again = json_tree::parse(&json_text(&tree), &problems);
        assert!(problems.is_empty());
        assert_eq!(one_line(&again.value), written);
    }
}
