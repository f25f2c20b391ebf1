//! The JSON Schema of documents, and the one list of tables and their fields: readers take from it which fields there are.

use std::{collections::HashMap, sync::LazyLock};

use crate::{
    json_tree,
    node::{Node, Value, field},
    problems::Problems,
};

/// The JSON Schema (2020-12) of documents, for editors and other programs: `schema/limits.schema.json` in the repository.
///
/// An editor checks a file with it and completes names: in TOML by `#:schema ./limits.schema.json` in the first line, in YAML by
/// `# yaml-language-server: $schema=./limits.schema.json`, in JSON by the field `"$schema"`. In a folder of documents it is not taken for
/// one. It knows the shape of a document, and not what a service binds or
/// which rules an override may name: [`RuleDocument::parse`](crate::RuleDocument::parse) knows all.
pub const SCHEMA: &str = include_str!("../schema/limits.schema.json");

/// The fields of a table of the schema, in its order; `""` is the document itself.
pub(crate) fn fields_of(table: &str) -> &'static [&'static str] {
    static TREE: LazyLock<Node> = LazyLock::new(|| json_tree::parse(SCHEMA, &Problems::default()));
    static TABLES: LazyLock<HashMap<&str, Vec<&str>>> = LazyLock::new(|| {
        let definitions = match field(&TREE, "$defs") {
            Some(Value::Table(definitions)) => &definitions[..],
            _ => &[],
        };
        let tables = definitions.iter().map(|(name, node)| (&*name.text, node));
        let names = |table: &'static Node| match field(table, "properties") {
            Some(Value::Table(fields)) => fields.iter().map(|(name, _)| &*name.text).collect(),
            _ => Vec::new(),
        };
        let tables = tables.chain([("", &*TREE)]);
        tables.map(|(name, table)| (name, names(table))).collect()
    });
    TABLES.get(table).map_or(&[], |fields| fields)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::{response_condition, rule_entry, store_policy};

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
            let mut fields = fields_of(name).to_vec();
            fields.sort_unstable();
            assert!(properties.keys().eq(fields), "{name}");
            for (field, property) in properties {
                assert!(property["description"].is_string(), "{name} {field}");
            }
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
            (format!("{rule}/mode"), names(rule_entry::MODES)),
            (format!("{rule}/at"), names(rule_entry::SIDES)),
            (
                format!("{rule}/missing/anyOf/0"),
                names(rule_entry::MISSING),
            ),
            (
                "/$defs/rollout/properties/others".to_owned(),
                names(rule_entry::OTHERS),
            ),
            (
                "/$defs/switch/properties/limit/anyOf/0".to_owned(),
                names(rule_entry::OTHERS),
            ),
            (
                "/$defs/on_store_error/anyOf/0".to_owned(),
                names(store_policy::STORE_ERRORS),
            ),
            (
                "/$defs/response_condition_table/properties/grpc_status/anyOf/0".to_owned(),
                names(response_condition::GRPC_STATUSES),
            ),
            (
                "/$defs/store_error_answer/then/properties/answer".to_owned(),
                names(store_policy::ANSWERS),
            ),
        ] {
            let found = schema.pointer(&format!("{path}/enum"));
            let found = found.and_then(Value::as_array).expect(&path);
            let found: Vec<&str> = found.iter().filter_map(Value::as_str).collect();
            assert_eq!(found, words, "{path}");
        }
    }
}
