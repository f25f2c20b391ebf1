//! The JSON Schema of documents.

/// The JSON Schema (2020-12) of documents, for editors and other programs: `schema/limits.schema.json` in the repository.
///
/// An editor checks a file with it and completes names: in TOML by `#:schema ./limits.schema.json` in the first line, in YAML by
/// `# yaml-language-server: $schema=./limits.schema.json`, in JSON by the field `"$schema"`. In a folder of documents it is not taken for
/// one. It knows the shape of a document, and not what a service binds or
/// which rules an override may name: [`RuleDocument::parse`](crate::RuleDocument::parse) knows all.
pub const SCHEMA: &str = include_str!("../schema/limits.schema.json");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;
    use tollgate_core::OnChange;

    use super::*;
    use crate::{
        assembly, condition, cost, limit, override_entry, response_condition, rule_entry,
        store_policy, switch_entry,
    };

    fn schema() -> Value {
        serde_json::from_str(SCHEMA).expect("JSON")
    }

    #[test]
    fn the_schema_has_every_field_that_the_reader_knows_and_no_other() {
        let schema = schema();
        let definitions = schema["$defs"].as_object().expect("a table");
        let mut tables: BTreeSet<&str> = definitions
            .iter()
            .filter(|(_, table)| table["properties"].is_object())
            .map(|(name, _)| name.as_str())
            .collect();
        let known: [(&str, &[&str]); 18] = [
            ("", assembly::FIELDS),
            ("rule", rule_entry::FIELDS),
            ("limit_table", limit::FIELDS),
            ("condition_table", condition::FIELDS),
            ("header", condition::HEADER_FIELDS),
            ("cost_header", cost::FIELDS),
            ("response_cost", cost::RESPONSE_FIELDS),
            ("response_condition_table", response_condition::FIELDS),
            ("consistency_table", store_policy::CONSISTENCY_FIELDS),
            ("eventual", store_policy::EVENTUAL_FIELDS),
            ("on_store_error_table", store_policy::STORE_ERROR_FIELDS),
            ("store_error_answer", store_policy::ANSWER_FIELDS),
            ("max_waiting", rule_entry::MAX_WAITING_FIELDS),
            ("rollout", rule_entry::ROLLOUT_FIELDS),
            ("group", assembly::GROUP_FIELDS),
            ("override", override_entry::FIELDS),
            ("key_hash", override_entry::KEY_FIELDS),
            ("switch", switch_entry::FIELDS),
        ];
        for (name, fields) in known {
            let table = match name {
                "" => &schema,
                name => &definitions[name],
            };
            assert_eq!(table["additionalProperties"], false, "{name}");
            let properties = table["properties"].as_object().expect(name);
            let in_schema: BTreeSet<&str> = properties.keys().map(String::as_str).collect();
            let in_reader: BTreeSet<&str> = fields.iter().copied().collect();
            assert_eq!(in_schema, in_reader, "{name}");
            for (field, property) in properties {
                assert!(property["description"].is_string(), "{name} {field}");
            }
            tables.remove(name);
        }
        assert!(tables.is_empty(), "the reader knows no {tables:?}");
    }

    #[test]
    fn the_schema_has_every_word_that_the_reader_knows_and_no_other() {
        fn names<T>(words: &[(&'static str, T)]) -> Vec<&'static str> {
            words.iter().map(|(name, _)| *name).collect()
        }
        let schema = schema();
        let on_change = [OnChange::Keep, OnChange::Scale, OnChange::Reset].map(OnChange::name);
        let rule = "/$defs/rule/properties";
        for (path, words) in [
            (format!("{rule}/mode"), names(rule_entry::MODES)),
            (format!("{rule}/on_change"), on_change.to_vec()),
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
                "/$defs/limit_table/properties/algorithm".to_owned(),
                names(limit::ALGORITHMS),
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
