//! Any text is read within bounds.

use proptest::prelude::*;
use tollgate::RuleSet;
use tollgate_rules::{Format, RuleDocument};

use crate::{
    bindings,
    model::{JSON, TOML, YAML},
    toml,
};

#[test]
fn thousands_of_rules_with_tens_of_thousands_of_overrides_are_read() {
    use std::fmt::Write;
    let mut text = "version = 1\n".to_owned();
    for n in 0..2_000 {
        let _ = write!(
            text,
            "[[rules]]\nname = \"rule-{n}\"\nlimit = \"{}/min\"\nby = \"header:x-api-key\"\nwhen = {{ path = \"/r{n}\" }}\n",
            n + 1
        );
    }
    for n in 0..20_000 {
        let _ = write!(
            text,
            "[[overrides]]\nrule = \"rule-{}\"\nkey = \"client-{n}\"\nlimit = \"{}/min\"\n",
            n % 2_000,
            5 + n % 7
        );
    }
    let document = toml(&text).expect("valid");
    assert_eq!(document.rules().len(), 2_000);
    assert!(RuleSet::new(document.limiter_rules()).is_ok());
    assert_eq!(document.names().count(), 2_000);
}

/// A text of all the characters that mean something, and of words that do.
fn garbage() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("version"),
        Just("rules"),
        Just("name"),
        Just("limit"),
        Just("by"),
        Just("when"),
        Just("overrides"),
        Just("[["),
        Just("]]"),
        Just("{"),
        Just("}"),
        Just("["),
        Just("]"),
        Just("="),
        Just(":"),
        Just("- "),
        Just("\n"),
        Just("\n  "),
        Just("\""),
        Just("'"),
        Just("100/min"),
        Just("1"),
        Just("&a "),
        Just("*a"),
        Just("<<"),
        Just("!!str "),
        Just("|\n"),
        Just("é"),
        Just("\u{0}"),
        Just("#"),
        Just(","),
        Just("true"),
        Just("2026-01-01T00:00:00Z"),
    ];
    proptest::collection::vec(word, 0..60).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_text_is_a_document_or_an_error(text in prop_oneof![garbage(), "\\PC{0,200}"]) {
        for format in [Format::Toml, Format::Yaml, Format::Json] {
            if let Err(error) = RuleDocument::parse(&text, format, &bindings()) {
                prop_assert!(!error.mistakes().is_empty());
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }

    #[test]
    fn a_document_with_one_part_cut_out_is_a_document_or_an_error(
        at in 0..TOML.len(), len in 0_usize..40, insert in "[\\[\\]{}\"=a0 \\n]{0,3}",
    ) {
        for (text, format) in [(TOML, Format::Toml), (YAML, Format::Yaml), (JSON, Format::Json)] {
            let at = at.min(text.len());
            let end = (at + len).min(text.len());
            let cut = format!("{}{insert}{}", &text[..at], &text[end..]);
            if let Err(error) = RuleDocument::parse(&cut, format, &bindings()) {
                let lines = cut.split('\n').count();
                for mistake in error.mistakes() {
                    prop_assert!((1..=lines).contains(&mistake.line()), "{error}");
                    prop_assert!(mistake.column() >= 1 && !mistake.message().is_empty());
                }
            }
        }
    }
}

#[test]
fn bombs_deep_nesting_and_large_documents_are_refused_or_read_in_bounds() {
    let laughs = {
        let mut text = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for (name, before) in ["b", "c", "d", "e", "f", "g", "h", "i"]
            .iter()
            .zip("abcdefgh".chars())
        {
            let list = vec![format!("*{before}"); 9].join(", ");
            text.push_str(&format!("{name}: &{name} [{list}]\n"));
        }
        text
    };
    let deep_list = format!("rules: {}{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep_table = format!("rules = {}1{}", "{a=".repeat(100_000), "}".repeat(100_000));
    let deep_json = "{\"a\":".repeat(100_000);
    let deep_not = format!(
        "version: 1\nrules: [{{ name: a, limit: 1/s, by: constant, when: {}path: /a{} }}]",
        "{ not: ".repeat(60),
        " }".repeat(60)
    );
    let long = format!("version = 1\nrules = \"{}\"", "x".repeat(10 << 20));
    let many = format!("version = 1\n{}", "[[rules]]\n".repeat(20_000));
    for (text, format) in [
        (laughs, Format::Yaml),
        (deep_list, Format::Yaml),
        (deep_table, Format::Toml),
        (deep_json, Format::Json),
        (deep_not, Format::Yaml),
        (long, Format::Toml),
        (many, Format::Toml),
    ] {
        let error = RuleDocument::parse(&text, format, &bindings()).expect_err("it is no document");
        let shown = error.to_string();
        assert!(shown.len() < 100_000, "{} bytes", shown.len());
    }
}
