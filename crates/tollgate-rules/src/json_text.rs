//! A tree as JSON, which every version reads.

use std::fmt::Write;

use crate::node::{Name, Node, Value};

/// The text of a tree, indented. What the syntaxes write in their own ways is text there: times, and numbers that are not whole.
pub(crate) fn json_text(node: &Node) -> String {
    let mut out = String::new();
    write(&mut out, &node.value, 0);
    out.push('\n');
    out
}

/// A value on one line.
pub(crate) fn one_line(value: &Value) -> String {
    const DEEPER_THAN_LINES: usize = 4;
    let mut out = String::new();
    write(&mut out, value, DEEPER_THAN_LINES);
    out
}

fn write(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(boolean) => out.push_str(if *boolean { "true" } else { "false" }),
        // Writing to a string does not fail.
        Value::Integer(number) => {
            let _ = write!(out, "{number}");
        }
        Value::Float(text) | Value::Text(text) | Value::Time(text) => write_text(out, text),
        Value::List(nodes) => write_all(out, '[', ']', depth, nodes, |out, node| {
            write(out, &node.value, depth + 1);
        }),
        Value::Table(fields) => {
            write_all(
                out,
                '{',
                '}',
                depth,
                fields,
                |out, (name, node): &(Name, Node)| {
                    write_text(out, &name.text);
                    out.push_str(": ");
                    write(out, &node.value, depth + 1);
                },
            );
        }
    }
}

/// Entries of the upper levels have lines of their own.
fn write_all<T>(
    out: &mut String,
    open: char,
    close: char,
    depth: usize,
    entries: &[T],
    write: impl Fn(&mut String, &T),
) {
    const LINES: usize = 3;
    let line = |out: &mut String, depth: usize| {
        if depth <= LINES {
            out.push('\n');
            out.extend(std::iter::repeat_n("  ", depth));
        }
    };
    out.push(open);
    for (index, entry) in entries.iter().enumerate() {
        if index > 0 {
            out.push_str(if depth < LINES { "," } else { ", " });
        }
        line(out, depth + 1);
        write(out, entry);
    }
    if !entries.is_empty() && depth < LINES {
        line(out, depth);
    }
    out.push(close);
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
