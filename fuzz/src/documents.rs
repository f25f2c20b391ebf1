//! Documents of rules, as tollgate-rules reads them.

use tollgate::{Key, key::computed};
use tollgate_core::RuleSet;
use tollgate_rules::{Bindings, Format, RuleDocument, operators::import_envoy};

/// More is not shown of a document with many mistakes.
const LONGEST_ERROR: usize = 100_000;

fn bindings() -> Bindings {
    let by_path = || computed(|head| Some(Key::of(head.uri.path())));
    Bindings::new()
        .key_with_text("tenant", by_path(), |text| Some(Key::of(text)))
        .key("raw", by_path())
        .cost("words", |_| 1)
        .plan("plan", |_| Some("gold"))
        .quota("tenant-quota", |_| None)
        .condition("beta", |_| true)
}

/// Reads a text in each syntax, in a service and at the edge. What is read has rules that a limiter takes; an error has mistakes, each with
/// its place. What can be imported is a document.
pub fn read_document(text: &str) {
    if let Ok(imported) = import_envoy([("text", text)]) {
        let edge = Bindings::new().at_edge();
        assert!(RuleDocument::parse(&imported, Format::Toml, &edge).is_ok());
    }
    let formats = [Format::Toml, Format::Yaml, Format::Json];
    let sides = [bindings(), bindings().at_edge()];
    for (format, bindings) in formats
        .into_iter()
        .flat_map(|format| sides.each_ref().map(|side| (format, side)))
    {
        match RuleDocument::parse(text, format, bindings) {
            Ok(document) => {
                assert!(!document.rules().is_empty(), "{format}");
                let rules = RuleSet::new(document.limiter_rules());
                assert!(rules.is_ok(), "{format}: {rules:?}");
            }
            Err(error) => {
                let lines = text.split('\n').count();
                assert!(!error.mistakes().is_empty(), "{format}");
                for mistake in error.mistakes() {
                    let is_in_text = (1..=lines).contains(&mistake.line);
                    assert!(is_in_text && mistake.column >= 1, "{format}: {error}");
                    assert!(!mistake.message.is_empty(), "{format}");
                }
                assert!(error.to_string().len() < LONGEST_ERROR, "{format}");
            }
        }
    }
}
