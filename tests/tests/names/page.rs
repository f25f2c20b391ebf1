//! A page of the repository, as a reader of Markdown sees it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use pulldown_cmark::{BrokenLink, CowStr, Event, LinkType, Options, Parser, Tag, TagEnd};

/// Headings and links of a page.
#[derive(Default)]
pub(crate) struct Page {
    /// The anchors of its headings.
    pub(crate) anchors: BTreeSet<String>,
    /// Where its links and pictures lead.
    pub(crate) links: Vec<String>,
    /// Labels of links, such as `[text][label]`, that the page does not define.
    pub(crate) undefined: BTreeSet<String>,
}

impl Page {
    pub(crate) fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path);
        Self::new(&text.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    }

    pub(crate) fn new(text: &str) -> Self {
        let mut page = Self::default();
        let mut undefined = BTreeSet::new();
        let mut note = |link: BrokenLink<'_>| {
            let is_link = link.link_type == LinkType::Reference;
            is_link.then(|| {
                undefined.insert(link.reference.to_string());
                (CowStr::from("undefined:"), CowStr::from(""))
            })
        };
        let options = Options::ENABLE_TABLES;
        let parser = Parser::new_with_broken_link_callback(text, options, Some(&mut note));
        let (mut heading, mut in_code) = (String::new(), false);
        let mut times = BTreeMap::new();
        for event in parser {
            match event {
                Event::Start(Tag::CodeBlock(_)) => in_code = true,
                Event::Start(Tag::Heading { .. }) => heading.clear(),
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.into_string());
                }
                Event::Text(_) if in_code => {}
                Event::Text(text) | Event::Code(text) => heading.push_str(&text),
                Event::End(TagEnd::CodeBlock) => in_code = false,
                Event::End(TagEnd::Heading(_)) => {
                    let anchor = anchor(&heading);
                    let before: &mut usize = times.entry(anchor.clone()).or_default();
                    let numbered = format!("{anchor}-{before}");
                    page.anchors
                        .insert(if *before == 0 { anchor } else { numbered });
                    *before += 1;
                }
                _ => {}
            }
        }
        page.undefined = undefined;
        page
    }
}

/// The anchor of a heading, as rustdoc, mdBook and forges make it.
fn anchor(heading: &str) -> String {
    let letters = heading.trim().chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ => letter.is_alphanumeric().then_some(letter),
    });
    letters.flat_map(char::to_lowercase).collect()
}

/// The folder of the repository.
pub(crate) fn repository() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    root.canonicalize().expect("the repository")
}

/// All pages of the repository, by their path in it. What the crates have of the guide is linked there, not written.
pub(crate) fn pages() -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect(&repository(), &mut found);
    found.sort();
    assert!(found.len() > 40, "{found:?}");
    found
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str());
        match name {
            _ if path.is_symlink() => {}
            // What is built, and what forges read for themselves.
            Some("target" | ".git") => {}
            _ if path.is_dir() => collect(&path, found),
            // Definitions for rustdoc, which `guide` compares with the book.
            Some("links.md" | "pictures.md") => {}
            Some(name) if name.ends_with(".md") => found.push(path),
            _ => {}
        }
    }
}
