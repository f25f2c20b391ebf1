//! The JSON Schema of documents, and the one list of tables and their fields: readers take from it which fields there are, and which a table must have.

use std::{collections::HashMap, sync::LazyLock};

use crate::{
    format::Format,
    node::{Node, Problems, Value},
};

/// The JSON Schema (2020-12) of documents, for editors and other programs: `schema/limits.schema.json` in the repository.
///
/// An editor checks a file with it and completes names: in TOML by `#:schema ./limits.schema.json` in the first line, in YAML by
/// `# yaml-language-server: $schema=./limits.schema.json`, in JSON by the field `"$schema"`. In a folder of documents, a file called
/// `.schema.json` is none of them. It knows the shape of a document, and not what a service binds or
/// which rules an override may name: [`RuleDocument::parse`](crate::RuleDocument::parse) knows all.
pub const SCHEMA: &str = include_str!("../schema/limits.schema.json");

/// A table of documents.
#[derive(Default)]
pub(crate) struct Table {
    /// The names of its fields, in their order.
    pub(crate) fields: Vec<&'static str>,
    /// Those that it must have, each with an example of its value.
    pub(crate) required: Vec<(&'static str, String)>,
    /// Those that are for checks by the layer: a handler decides when it checks, and for whom.
    pub(crate) for_layer: Vec<&'static str>,
}

static TREE: LazyLock<Node> = LazyLock::new(|| Format::Json.parse(SCHEMA, &Problems::default()));
static TABLES: LazyLock<HashMap<&str, Table>> = LazyLock::new(|| {
    let fields = TREE.get("$defs").map_or(&[][..], Node::fields);
    let definitions = fields.iter().map(|(name, node)| (&*name.text, node));
    let all = definitions.chain([("", &*TREE)]);
    all.map(|(name, node)| (name, Table::read(node))).collect()
});
static NONE: LazyLock<Table> = LazyLock::new(Table::default);

/// The table that the schema calls so; `""` is the document itself.
pub(crate) fn table_of(name: &str) -> &'static Table {
    TABLES.get(name).unwrap_or(&NONE)
}

/// Whether a table of documents has a field with this name.
pub(crate) fn is_field(name: &str) -> bool {
    TABLES.values().any(|table| table.fields.contains(&name))
}

impl Table {
    fn read(definition: &'static Node) -> Self {
        let properties = definition.get("properties").map_or(&[][..], Node::fields);
        let required = definition.get("required").map_or(&[][..], Node::items);
        let mut table = Self::default();
        for (name, property) in properties {
            let example = property.get("examples").and_then(|all| all.items().first());
            let is_name = |it: &Node| matches!(&it.value, Value::Text(text) if *text == name.text);
            if let Some(example) = example.filter(|_| required.iter().any(is_name)) {
                table.required.push((&name.text, example.value.to_string()));
            }
            if property.get("x-checked-by").is_some() {
                table.for_layer.push(&name.text);
            }
            table.fields.push(&name.text);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::{response_condition, rule_entry, rule_settings};

    fn schema() -> Value {
        serde_json::from_str(SCHEMA).expect("JSON")
    }

    #[test]
    fn the_tables_of_the_schema_are_closed_and_each_field_is_described() {
        let schema = schema();
        let definitions = schema["$defs"].as_object().expect("a table");
        let mut tables = 0;
        for (name, table) in definitions.iter().chain([(&String::new(), &schema)]) {
            let Some(properties) = table["properties"].as_object() else {
                continue;
            };
            assert_eq!(table["additionalProperties"], false, "{name}");
            let mut fields = table_of(name).fields.clone();
            fields.sort_unstable();
            assert!(properties.keys().eq(fields), "{name}");
            for (field, property) in properties {
                assert!(property["description"].is_string(), "{name} {field}");
            }
            let required = table["required"].as_array().map_or(0, Vec::len);
            assert_eq!(table_of(name).required.len(), required, "{name}");
            tables += 1;
        }
        assert!(tables >= 18, "{tables}");
    }

    #[test]
    fn the_schema_has_every_word_that_the_reader_knows_and_no_other() {
        fn names<T>(words: &[(&'static str, T)]) -> Vec<&'static str> {
            words.iter().map(|(name, _)| *name).collect()
        }
        let schema = schema();
        let rule = "/$defs/rule/properties";
        for (path, words) in [
            (format!("{rule}/mode"), names(rule_settings::MODES)),
            (format!("{rule}/at"), names(rule_entry::SIDES)),
            (
                format!("{rule}/missing/anyOf/0"),
                names(rule_settings::MISSING),
            ),
            (
                "/$defs/rollout/properties/others".to_owned(),
                names(rule_settings::OTHERS),
            ),
            (
                "/$defs/switch/properties/limit/anyOf/0".to_owned(),
                names(rule_settings::OTHERS),
            ),
            (
                "/$defs/on_store_error/anyOf/0".to_owned(),
                names(rule_settings::STORE_ERRORS),
            ),
            (
                "/$defs/response_condition_table/properties/grpc_status/anyOf/0".to_owned(),
                names(response_condition::GRPC_STATUSES),
            ),
            (
                "/$defs/store_error_answer/then/properties/answer".to_owned(),
                names(rule_settings::ANSWERS),
            ),
        ] {
            let found = schema
                .pointer(&format!("{path}/enum"))
                .and_then(Value::as_array)
                .expect(&path);
            let found: Vec<&str> = found.iter().filter_map(Value::as_str).collect();
            assert_eq!(found, words, "{path}");
        }
    }
}
