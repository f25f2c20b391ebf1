//! The syntax of a document. TOML is read here.

use std::{fmt, path::Path};

use toml::de::{DeTable, DeValue};

use crate::{
    json_tree,
    node::{Name, Node, Value},
    problems::Problems,
    yaml_tree,
};

/// The syntax of a document. All have one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// TOML 1.0
    Toml,
    /// YAML 1.2
    Yaml,
    /// JSON
    Json,
}

impl Format {
    /// The format that a file's extension says: `toml`, `yaml`, `yml` or `json`.
    #[must_use]
    pub fn of_path(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        match &*extension {
            "toml" => Some(Self::Toml),
            "yaml" | "yml" => Some(Self::Yaml),
            "json" => Some(Self::Json),
            _ => None,
        }
    }

    /// The tree of a text; what could be read of it, where something is wrong.
    pub(crate) fn parse(self, text: &str, problems: &Problems) -> Node {
        match self {
            Self::Toml => parse_toml(text, problems),
            Self::Yaml => yaml_tree::parse(text, problems),
            Self::Json => json_tree::parse(text, problems),
        }
    }

    /// Whether a text is a JSON Schema: editors want that of documents next to them.
    pub(crate) fn is_schema(self, text: &str) -> bool {
        const META: &str = "json-schema.org/";
        if !text.contains(META) {
            return false;
        }
        let root = self.parse(text, &Problems::default());
        let meta = root.text_of("$schema");
        meta.is_some_and(|meta| meta.contains(META)) && root.get("version").is_none()
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Toml => "TOML",
            Self::Yaml => "YAML",
            Self::Json => "JSON",
        })
    }
}

fn parse_toml(text: &str, problems: &Problems) -> Node {
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        // A sentence of the parser's lines.
        let lines: Vec<&str> = error.message().lines().map(str::trim).collect();
        let message = format!("this is not TOML: {}", lines.join("; "));
        problems.add(error.span().unwrap_or(0..0), message);
    }
    Node {
        span: 0..text.len(),
        value: self::table(table.get_ref()),
    }
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
