//! Any text is read within bounds.

use proptest::prelude::*;
use tollgate_rules::{Format, LiveRules, RuleDocument};

use crate::{
    bindings,
    model::{JSON, TOML, YAML},
    says, toml,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

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
                    prop_assert!((1..=lines).contains(&mistake.line), "{error}");
                    prop_assert!(mistake.column >= 1 && !mistake.message.is_empty());
                }
            }
        }
    }
}

/// What is wrong with a text in this format; the error is short.
fn wrong(text: &str, format: Format) -> String {
    let error = RuleDocument::parse(text, format, &bindings()).expect_err("it is no document");
    let shown = error.to_string();
    assert!(shown.len() < 100_000, "{format}: {} bytes", shown.len());
    shown
}

#[test]
fn deep_nesting_is_refused_in_every_syntax() {
    const DEEP: usize = 100_000;
    let nested = |open: &str, close: &str, depth: usize| {
        format!("{}1{}", open.repeat(depth), close.repeat(depth))
    };
    let lists = nested("[", "]", DEEP);
    let blocks: String = (0..1_000)
        .map(|depth| format!("{}a:\n", " ".repeat(depth)))
        .collect();
    let not = nested("{ not: ", " }", 60).replace('1', "path: /a");
    let not = format!("version: 1\nrules: [{{ name: a, limit: 1/s, by: constant, when: {not} }}]");
    for (text, format) in [
        (format!("rules = {lists}"), Format::Toml),
        (
            format!("rules = {}", nested("{a=", "}", DEEP)),
            Format::Toml,
        ),
        (format!("a{} = 1", ".a".repeat(DEEP)), Format::Toml),
        (format!("[a{}]\nb = 1", ".a".repeat(DEEP)), Format::Toml),
        (format!("[[a{}]]\nb = 1", ".a".repeat(DEEP)), Format::Toml),
        (format!("rules: {lists}"), Format::Yaml),
        (
            format!("rules: {}", nested("{a: ", "}", DEEP)),
            Format::Yaml,
        ),
        ("- ".repeat(DEEP), Format::Yaml),
        ("? ".repeat(DEEP), Format::Yaml),
        (blocks, Format::Yaml),
        (not, Format::Yaml),
        (format!("{{\"rules\": {lists}}}"), Format::Json),
        (nested("{\"a\":", "}", DEEP), Format::Json),
        ("{\"a\":".repeat(DEEP), Format::Json),
        ("[".repeat(DEEP), Format::Json),
    ] {
        wrong(&text, format);
    }
}

#[test]
fn bombs_are_refused_in_every_syntax() {
    let laughs = |join: fn(&str) -> String| {
        let mut text = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for (name, before) in ["b", "c", "d", "e", "f", "g", "h", "i"]
            .iter()
            .zip("abcdefgh".chars())
        {
            let value = join(&format!("*{before}"));
            text.push_str(&format!("{name}: &{name} {value}\n"));
        }
        text
    };
    let lists = laughs(|alias| format!("[{}]", [alias; 9].join(", ")));
    let tables = laughs(|alias| {
        let fields: Vec<String> = (0..9).map(|n| format!("f{n}: {alias}")).collect();
        format!("{{ {} }}", fields.join(", "))
    });
    let merges: String = (0..30)
        .map(|n| format!("m{}: &m{}\n  <<: [*m{n}, *m{n}]\n", n + 1, n + 1))
        .collect();
    let digits = "9".repeat(1 << 16);
    let many = |rule: &str, between: &str| vec![rule; 2_000].join(between);
    for (text, format) in [
        (lists, Format::Yaml),
        (tables, Format::Yaml),
        (format!("m0: &m0 {{ a: 1 }}\n{merges}"), Format::Yaml),
        ("a: &a [*a]\n".to_owned(), Format::Yaml),
        (format!("version: {digits}"), Format::Yaml),
        (
            format!("version: 1\nrules: [{}]", many("{}", ", ")),
            Format::Yaml,
        ),
        (format!("version = {digits}"), Format::Toml),
        (format!("version = 1e{digits}"), Format::Toml),
        (
            format!("version = 1\n{}", many("[[rules]]", "\n")),
            Format::Toml,
        ),
        (format!("{{\"version\": {digits}}}"), Format::Json),
        (format!("{{\"version\": 1e{digits}}}"), Format::Json),
        (
            format!("{{\"version\": 1, \"rules\": [{}]}}", many("{}", ",")),
            Format::Json,
        ),
        (format!("{{{}}}", many("\"version\": 1", ",")), Format::Json),
    ] {
        wrong(&text, format);
    }
}

#[test]
fn of_thousands_of_mistakes_on_one_line_some_are_shown() {
    let rules = vec!["{}"; 10_000].join(",");
    let text = format!("{{\"version\": 1, \"rules\": [{rules}]}}");
    let error =
        RuleDocument::parse(&text, Format::Json, &bindings()).expect_err("no rule has a name");
    // Each lacks three fields.
    assert_eq!(error.mistakes().len(), 100);
    let last = &error.mistakes()[99];
    assert_eq!((last.line, last.column), (1, 26 + 3 * 33));
    let shown = error.to_string();
    assert!(shown.ends_with("100 mistakes or more"));
    assert!(shown.len() < 50_000, "{}", shown.len());
}

#[test]
fn of_thousands_of_misspelt_names_some_are_compared_with_thousands_of_rules() {
    use std::fmt::Write;
    let mut text = "version = 1\n".to_owned();
    for n in 0..3_000 {
        let _ = write!(
            text,
            "[[rules]]\nname = \"rule-{n}\"\nlimit = \"1/s\"\nby = \"header:x-api-key\"\n"
        );
    }
    for n in 0..12_000 {
        let _ = write!(
            text,
            "[[overrides]]\nrule = \"rulle-{n}\"\nkey = \"client\"\nlimit = \"1/s\"\n"
        );
    }
    let error = toml(&text).expect_err("there are no such rules");
    assert_eq!(error.mistakes().len(), 100);
    assert_eq!(
        error.mistakes()[0].message,
        "unknown rule \"rulle-0\"; it is none of 3000; did you mean \"rule-0\"?"
    );
}

#[test]
fn a_group_has_at_most_a_thousand_rules() {
    let text = |rules: usize| {
        let mut text = "version: 1\nrules:\n".to_owned();
        for n in 0..rules {
            text.push_str(&format!(
                "  - {{ name: r{n}, limit: 1/s, by: constant, when: {{ path: /r{n} }} }}\n"
            ));
        }
        let names: Vec<String> = (0..rules).map(|n| format!("r{n}")).collect();
        text.push_str(&format!(
            "groups: [{{ name: all, rules: [{}] }}]\n",
            names.join(", ")
        ));
        text
    };
    assert!(RuleDocument::parse(&text(1_000), Format::Yaml, &bindings()).is_ok());
    let shown = wrong(&text(1_001), Format::Yaml);
    says(
        &shown,
        "a group has at most 1000 rules, and this one has 1001; make several",
    );
}

#[test]
fn an_alias_stands_for_a_table_and_not_for_a_hundred_thousand() {
    let rules = |rules: usize| {
        let mut text = "version: 1\nrules:\n".to_owned();
        for rule in 0..rules {
            let when = match rule {
                0 => "&api { path: \"/api/{*rest}\", methods: [GET, POST] }",
                _ => "*api",
            };
            text.push_str(&format!(
                "  - {{ name: r{rule}, limit: 1/s, by: constant, when: {when} }}\n"
            ));
        }
        RuleDocument::parse(&text, Format::Yaml, &bindings())
    };
    assert_eq!(rules(1_000).expect("valid").rules().len(), 1_000);
    let error = rules(20_000).expect_err("it stands for too much");
    let words = "its aliases stand for at most 100000";
    says(&error, words);
}

#[tokio::test]
async fn a_file_that_is_not_utf_8_is_refused_with_its_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("limits.toml");
    for (line, bytes) in [
        (2, &b"version = 1\n# \xe9t\xe9\n"[..]),
        (1, b"\xff\xfev\0e\0r\0"),
    ] {
        std::fs::write(&path, bytes).expect("written");
        let error = LiveRules::watch(&path, bindings()).expect_err("it is no text");
        let expected = format!("limits.toml: line {line} is not UTF-8; save the file as UTF-8");
        says(&error, &expected);
    }
}
