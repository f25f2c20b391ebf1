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

/// The others are in `wrong/beyond_the_schema.txt`: they are about names that code binds, about other parts of the document, about
/// numbers that depend on each other, or about text that an editor does not see.
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
    let beyond = include_str!("../wrong/beyond_the_schema.txt").lines();
    assert!(
        beyond.eq(accepted.iter().map(String::as_str)),
        "{accepted:?}"
    );
    assert!(refused > 50, "{refused}");
}

/// The reference page, from the schema: `TOLLGATE_BLESS=1 cargo test -p tollgate-rules --test documents schema` writes it.
#[test]
fn the_reference_is_the_schema_in_words() {
    let schema = schema();
    let mut page = "# All fields of a rule file\n\nLook up a field. These are all tables of a document, from its [JSON Schema][SCHEMA]. \
        TOML, YAML and JSON have the same model; [Limits in a file][files.md] has examples. A star marks a field that is required.\n"
        .to_owned();
    write_table(&mut page, "The document", &schema, &schema);
    let definitions = schema["$defs"].as_object().expect("a table");
    for (name, definition) in definitions {
        if name == "limit" || definition["properties"].is_object() {
            let title = definition["title"].as_str().expect("a title");
            write_table(&mut page, title, definition, &schema);
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

fn write_table(page: &mut String, title: &str, table: &Value, schema: &Value) {
    // Writing to a string does not fail.
    let _ = write!(page, "\n## {title}\n\n");
    if let Some(description) = table["description"].as_str() {
        let _ = write!(page, "{description}\n\n");
    }
    let required = table["required"].as_array().cloned().unwrap_or_default();
    for (name, property) in table["properties"].as_object().into_iter().flatten() {
        let is_required = required.iter().any(|field| field == name);
        let star = if is_required { "\\*" } else { "" };
        let words = property["description"].as_str().expect("a description");
        let mut values = values(property);
        if !values.is_empty() {
            values = format!(" One of {values}.");
        }
        let examples = property["examples"].as_array().cloned().unwrap_or_default();
        let examples = examples.iter().map(|example| format!("`{example}`"));
        let examples: Vec<String> = examples.collect();
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
        let forms = forms(property, schema);
        let lists = forms.iter().filter(|form| form["type"] == "array").count();
        let several = match lists {
            0 => "",
            // The words say so already.
            _ if words.contains(" list") || words.contains("several") => "",
            _ if lists == forms.len() => " A list.",
            _ => " Or a list.",
        };
        let bounds = forms
            .iter()
            .map(|form| match (&form["minimum"], &form["maximum"]) {
                (Value::Null, Value::Null) => String::new(),
                (Value::Null, most) => format!(" At most `{most}%`."),
                (least, Value::Null) if least.as_u64() <= Some(1) => String::new(),
                (least, Value::Null) => format!(" At least {least}."),
                (least, most) => format!(" {least} to {most}."),
            });
        let bounds: String = bounds.collect();
        let _ = writeln!(
            page,
            "- `{name}`{star}: {words}{several}{bounds}{values}{examples}{default}"
        );
    }
}

/// The forms that a field may have.
fn forms<'a>(property: &'a Value, schema: &'a Value) -> Vec<&'a Value> {
    let name = property["$ref"]
        .as_str()
        .and_then(|it| it.rsplit('/').next());
    let property = name.map_or(property, |name| &schema["$defs"][name]);
    match property["anyOf"].as_array() {
        Some(forms) => (forms.iter())
            .flat_map(|form| self::forms(form, schema))
            .collect(),
        None => vec![property],
    }
}

/// The words that a field may be.
fn values(property: &Value) -> String {
    let words = property["enum"].as_array().cloned().unwrap_or_default();
    let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    words.join(", ")
}
