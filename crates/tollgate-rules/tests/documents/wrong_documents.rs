//! A corpus of wrong documents, each beside the message that it gets.
//!
//! `TOLLGATE_BLESS=1 cargo test -p tollgate-rules --test documents wrong_documents` writes the messages as they are now.

use std::{env, fs, path::Path};

use tollgate::{Key, key::computed};
use tollgate_rules::{Bindings, Format, RuleText};

fn bindings() -> Bindings {
    let by_path = || computed(|head| Some(Key::of(head.uri.path())));
    Bindings::new()
        .key_with_text("tenant", by_path(), |text| {
            (text != "nobody").then(|| Key::of(text))
        })
        .key("raw", by_path())
        .cost("words", |_| 1)
        .plan("plan", |_| Some("gold"))
        .quota("tenant-quota", |_| None)
        .condition("beta", |_| true)
        .response_condition("wrong-password", |_| true)
        .response_cost("tokens", |_| None)
}

/// Whether a line of a document is shown with a client's key: something behind the name `key`.
fn shows_key(line: &str) -> bool {
    let is_value = |rest: &&str| {
        rest.trim_start_matches('"')
            .trim_start()
            .starts_with(['=', ':'])
    };
    let behind = line.split("key").skip(1).filter(is_value);
    behind.into_iter().any(|rest| {
        let value = rest.split("limit").next().unwrap_or_default();
        value.contains(char::is_alphanumeric)
    })
}

#[test]
fn each_wrong_document_gets_its_message() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wrong");
    let mut documents = 0;
    let mut differ = Vec::new();
    for entry in fs::read_dir(folder).expect("the corpus") {
        let path = entry.expect("an entry").path();
        let Some(format) = Format::of_path(&path) else {
            continue;
        };
        documents += 1;
        let text = fs::read_to_string(&path).expect("a text");
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.expect("a name");
        let error = RuleText::named(name, &*text, format).parse(&bindings());
        let message = match error {
            Ok(_) => panic!("{name} is not wrong"),
            Err(error) => format!("{error}\n"),
        };
        let has_keys = text.contains("verrides");
        let mut lines = message
            .lines()
            .filter(|line| has_keys && line.contains(" | "));
        let shown = lines.find(|line| shows_key(line));
        assert_eq!(shown, None, "a client's key goes to the log");
        let without_example = message.replace("such as \"acme-key-1\"", "");
        assert!(!without_example.contains("acme"), "{message}");
        let expected = path.with_file_name(format!("{name}.txt"));
        if env::var_os("TOLLGATE_BLESS").is_some() {
            fs::write(&expected, &message).expect("the message is written");
        } else if fs::read_to_string(&expected).ok().as_ref() != Some(&message) {
            differ.push(message);
        }
    }
    assert!(documents >= 60, "{documents}");
    assert!(differ.is_empty(), "these differ:\n\n{}", differ.join("\n"));
}
