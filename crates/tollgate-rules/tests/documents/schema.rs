//! The JSON Schema of documents: it accepts what is right, and refuses what a schema can know to be wrong.

use std::{
    env,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;
use tollgate_rules::{Format, SCHEMA};

/// Wrong documents that a schema cannot refuse: they are about names that code binds, about other parts of the document, about
/// numbers that depend on each other, or about text that an editor does not see.
const BEYOND: &[&str] = &[
    "at_edge_bound.toml",
    "at_edge_response.toml",
    "by_path_other_parameter.toml",
    "by_path_without_path.toml",
    "by_tenannt.toml",
    "by_unknown.toml",
    "calendar_override.toml",
    "client_ip_everybody.yaml",
    "client_ip_hops_of_single.toml",
    "client_ip_network.toml",
    "client_ip_two_trusts.toml",
    "consistency_unreported.toml",
    "cost_above_limit.toml",
    "cost_above_slots.toml",
    "cost_by_response_unknown.toml",
    "cost_unknown.toml",
    "count_if_name.toml",
    "count_if_nested.toml",
    "count_if_of_slots.toml",
    "credits_and_wait.toml",
    "debt_and_wait.toml",
    "debt_of_log.toml",
    "descriptor_in_service.toml",
    "durable_other_part.toml",
    "exact_when_exact.toml",
    "group_tie.toml",
    "group_twice.toml",
    "group_unknown_rule.toml",
    "handler_in_group.toml",
    "handler_override.toml",
    "handler_when.toml",
    "handler_with_others.toml",
    "idempotent_and_wait.toml",
    "label_other_part.toml",
    "limit_burst_of_window.toml",
    "limit_large_log.toml",
    "name_twice.toml",
    "no_rules.toml",
    "on_store_error_order.toml",
    "override_address.toml",
    "override_bound_key.toml",
    "override_bound_key_refused.toml",
    "override_constant.toml",
    "override_cost_above_slots.toml",
    "override_hash_without_secret.toml",
    "override_method_case.toml",
    "override_other_algorithm.toml",
    "override_path_parameter.toml",
    "override_path_pattern.toml",
    "override_query_escape.toml",
    "override_two_parts.toml",
    "override_unknown_rule.toml",
    "override_wait.toml",
    "plan_other_algorithm.toml",
    "plan_other_period.toml",
    "plan_unknown.toml",
    "plans_twice.json",
    "quota_by_unknown.toml",
    "rollout_name.toml",
    "shed_capacity.toml",
    "shed_headers.toml",
    "shed_thresholds.toml",
    "shed_trusted.toml",
    "shed_trusts_all.toml",
    "switch_unknown_rule.toml",
    "wait_eventual.toml",
    "wait_long.toml",
    "wait_of_log.toml",
    "wait_zero.toml",
    "when_network.toml",
    "when_unknown.toml",
];

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn schema() -> Value {
    serde_json::from_str(SCHEMA).expect("JSON")
}

/// A validator with the schema.
fn validator() -> (Schemas, SchemaIndex) {
    const NAME: &str = "limits.schema.json";
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    compiler.add_resource(NAME, schema()).expect("a name");
    let index = compiler.compile(NAME, &mut schemas).expect("a schema");
    (schemas, index)
}

/// A document as a validator sees it. `None`: its syntax is wrong.
fn document(path: &Path) -> Option<Value> {
    let text = fs::read_to_string(path).expect("a text");
    match Format::of_path(path).expect("a document") {
        Format::Toml => Some(without_times(toml::from_str(&text).ok()?)),
        Format::Json => serde_json::from_str(&text).ok(),
        _ => serde_saphyr::from_str(&text).ok(),
    }
}

/// Editors see a time of TOML as its text.
fn without_times(value: Value) -> Value {
    match value {
        Value::Object(fields)
            if fields.len() == 1 && fields.keys().all(|key| key.starts_with("$__toml")) =>
        {
            fields.into_iter().next().expect("there is one").1
        }
        Value::Object(fields) => {
            let fields = fields.into_iter();
            Value::Object(
                fields
                    .map(|(name, value)| (name, without_times(value)))
                    .collect(),
            )
        }
        Value::Array(values) => Value::Array(values.into_iter().map(without_times).collect()),
        other => other,
    }
}

fn documents(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<PathBuf> = paths
        .filter(|path| Format::of_path(path).is_some())
        .collect();
    paths.sort();
    paths
}

#[test]
fn right_documents_are_valid() {
    let (schemas, index) = validator();
    let mut all = documents(&here("tests/files"));
    all.push(here("../../examples/limits.toml"));
    assert!(all.len() > 5, "{all:?}");
    for path in all {
        let document = document(&path).expect("its syntax is right");
        if let Err(wrong) = schemas.validate(&document, index) {
            panic!("{}: {wrong}", path.display());
        }
    }
}

#[test]
fn wrong_documents_are_not_valid() {
    let (schemas, index) = validator();
    let mut accepted = Vec::new();
    let mut refused = 0;
    for path in documents(&here("tests/wrong")) {
        let Some(document) = document(&path) else {
            continue;
        };
        if schemas.validate(&document, index).is_ok() {
            let name = path.file_name().and_then(|name| name.to_str());
            accepted.push(name.expect("a name").to_owned());
        } else {
            refused += 1;
        }
    }
    assert_eq!(accepted, BEYOND);
    assert!(refused > 50, "{refused}");
}

/// The reference page, from the schema: `TOLLGATE_BLESS=1 cargo test -p tollgate-rules --test documents schema` writes it.
#[test]
fn the_reference_is_the_schema_in_words() {
    let schema = schema();
    let mut page = "# All fields of a rule file\n\nLook up a field. These are all tables of a document, from its [JSON Schema][SCHEMA]. \
        TOML, YAML and JSON have the same model; [Limits in a file][files.md] has examples. A star marks a field that is required.\n"
        .to_owned();
    write_table(&mut page, "The document", &schema);
    let definitions = schema["$defs"].as_object().expect("a table");
    for (name, definition) in definitions {
        if name == "limit" || definition["properties"].is_object() {
            let title = definition["title"].as_str().expect("a title");
            write_table(&mut page, title, definition);
        }
    }
    let path = here("guide/reference.md");
    // Behind it, the test `names` writes where the links lead.
    let written = fs::read_to_string(&path).unwrap_or_default();
    let foot = written.find("\n[SCHEMA]: ").map_or("", |at| &written[at..]);
    if env::var_os("TOLLGATE_BLESS").is_some() {
        fs::write(&path, format!("{page}{foot}")).expect("the page is written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written.starts_with(&page),
        "guide/reference.md is not current; TOLLGATE_BLESS=1 writes it"
    );
}

fn write_table(page: &mut String, title: &str, table: &Value) {
    // Writing to a string does not fail.
    let _ = write!(page, "\n## {title}\n\n");
    if let Some(description) = table["description"].as_str() {
        let _ = write!(page, "{description}\n\n");
    }
    let required = table["required"].as_array().cloned().unwrap_or_default();
    for (name, property) in table["properties"].as_object().into_iter().flatten() {
        let star = if required.iter().any(|field| field == name) {
            "\\*"
        } else {
            ""
        };
        let words = property["description"].as_str().expect("a description");
        let mut values = values(property);
        if !values.is_empty() {
            values = format!(" One of {values}.");
        }
        let examples = property["examples"].as_array().cloned().unwrap_or_default();
        let examples: Vec<String> = examples
            .iter()
            .map(|example| format!("`{example}`"))
            .collect();
        let examples = match examples.len() {
            0 => String::new(),
            // The words show one already.
            _ if words.contains('`') => String::new(),
            _ => format!(" Such as {}.", examples.join(", ")),
        };
        let default = match &property["default"] {
            Value::Null => String::new(),
            _ if words.contains("Default") => String::new(),
            default => format!(" Default: `{default}`."),
        };
        let _ = writeln!(page, "- `{name}`{star}: {words}{values}{examples}{default}");
    }
}

/// The words that a field may be.
fn values(property: &Value) -> String {
    let words = property["enum"].as_array().cloned().unwrap_or_default();
    let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    words.join(", ")
}
