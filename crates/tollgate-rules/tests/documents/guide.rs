//! The documents of the guide do what the page says.

use tollgate_rules::{Bindings, DocumentError, Format, RuleDocument};

use crate::{client, get, passing};

/// The blocks of TOML on the page, documents and parts of them.
fn blocks() -> Vec<&'static str> {
    let blocks = include_str!("../../guide/files.md")
        .split("```toml\n")
        .skip(1);
    blocks
        .map(|rest| rest.split("```").next().unwrap_or_default())
        .collect()
}

fn parse(text: &str) -> Result<RuleDocument, DocumentError> {
    RuleDocument::parse(text, Format::Toml, &Bindings::new())
}

#[test]
fn each_block_of_the_page_is_right_where_it_belongs() {
    let blocks = blocks();
    let grouped = [
        ("export", "when = { path = '/export', methods = ['POST'] }"),
        ("writes", "when = { methods = ['POST'] }"),
        ("everything", ""),
    ]
    .map(|(name, when)| {
        format!("[[rules]]\nname = '{name}'\nlimit = '1/s'\nby = 'client_ip'\n{when}\n")
    });
    for block in &blocks[1..] {
        let before = if block.contains("[[groups]]") {
            format!("version = 1\n{}", grouped.concat())
        } else if block.contains("[[rules]]") {
            "version = 1\n".to_owned()
        } else {
            blocks[0].to_owned()
        };
        let text = before + block;
        parse(&text).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

#[tokio::test]
async fn a_request_counts_by_its_key_or_else_by_its_address() {
    let blocks = blocks();
    let block = blocks
        .iter()
        .find(|block| block.contains("\"programs\""))
        .expect("a block");
    let text = format!("version = 1\n{block}").replace("100/s", "7/s");
    let rules = || parse(&text).expect("it is right").rules();
    assert_eq!(passing(rules(), || client("/", "k1")).await, 7);
    assert_eq!(passing(rules(), || get("/")).await, 5);
    assert_eq!(passing(rules(), || client("/", "")).await, 5);
    assert_eq!(passing(rules(), || get("/healthz")).await, 10);
}
