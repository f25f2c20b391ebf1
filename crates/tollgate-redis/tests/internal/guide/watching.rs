//! The page on watching lists what the code tells.

use std::{collections::BTreeSet, fs, path::Path};

/// The metrics that a text names.
fn named(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    let starts = text.match_indices("tollgate_redis_").map(|(at, _)| at);
    let names = starts.map(|at| {
        let rest = &text[at..];
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        rest[..end].to_owned()
    });
    names.collect()
}

#[test]
fn every_metric_is_on_the_page_and_nothing_else() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut reported = BTreeSet::new();
    for file in fs::read_dir(package.join("src/observe")).expect("a folder") {
        let text = fs::read_to_string(file.expect("a file").path()).expect("a text");
        reported.extend(named(&text));
    }
    let page = fs::read_to_string(package.join("guide/watching.md")).expect("the page");
    assert_eq!(named(&page), reported);
    assert!(reported.len() > 20, "{reported:?}");
}
