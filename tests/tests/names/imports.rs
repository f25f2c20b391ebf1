//! Imports run one way: no files of a crate import each other in a circle, nor do the folders of a folder.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use crate::page::repository;

/// The paths of a tree behind `crate::`, such as `a::{b, c::{self, d as e}}`; and what follows it.
fn paths<'a>(tree: &'a str, before: &[&'a str], found: &mut Vec<Vec<&'a str>>) -> &'a str {
    let mut path = before.to_vec();
    let mut rest = tree;
    loop {
        let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
        if !matches!(name, "" | "self") {
            path.push(name);
        }
        if let Some(after) = after.strip_prefix("::") {
            rest = after;
            continue;
        }
        let Some(mut inner) = after.strip_prefix('{') else {
            found.push(path);
            return after;
        };
        loop {
            inner =
                inner.trim_start_matches(|letter: char| letter == ',' || letter.is_whitespace());
            if let Some(after) = inner.strip_prefix('}') {
                return after;
            }
            inner = paths(inner, &path, found);
            // `as e`
            inner = &inner[inner.find([',', '}']).unwrap_or(inner.len())..];
        }
    }
}

/// What a text has behind `root`, in imports and elsewhere.
fn all_paths<'a>(text: &'a str, root: &str) -> Vec<Vec<&'a str>> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices(root) {
        paths(&text[at + root.len()..], &[], &mut found);
    }
    found
}

/// The code of a file, without comments and tests: they import what they test, and nothing imports them.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let code = text.split("\nmod tests {").next().unwrap_or_default();
    if code.contains("#[test]") {
        return String::new();
    }
    let lines = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The file in which the item of a path behind `crate::` is, also where folders give it on.
fn file_of(folder: &Path, path: &[&str], is_root: bool) -> Option<PathBuf> {
    let (name, rest) = path.split_first()?;
    let file = folder.join(format!("{name}.rs"));
    if file.is_file() {
        return Some(file);
    }
    if folder.join(name).join("mod.rs").is_file() {
        return file_of(&folder.join(name), rest, false);
    }
    let text = code(&folder.join(if is_root { "lib.rs" } else { "mod.rs" }));
    let given_on = all_paths(&text, "self::");
    let found = given_on
        .iter()
        .find(|path| path.len() > 1 && path.last() == Some(name))?;
    file_of(folder, found, is_root)
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("an entry").path();
        match path.file_name().and_then(|name| name.to_str()) {
            Some("tests" | "tests.rs" | "mod.rs" | "lib.rs" | "main.rs") => {}
            _ if path.is_dir() => files(&path, found),
            _ => found.push(path),
        }
    }
}

/// Those among these imports that are part of a circle, or lie between two.
fn circles<T: Ord + Clone>(imports: &BTreeSet<(T, T)>) -> BTreeSet<(T, T)> {
    let mut left = imports.clone();
    loop {
        let from: BTreeSet<T> = left.iter().map(|(from, _)| from.clone()).collect();
        let to: BTreeSet<T> = left.iter().map(|(_, to)| to.clone()).collect();
        let before = left.len();
        left.retain(|(one, other)| to.contains(one) && from.contains(other));
        if left.len() == before {
            return left;
        }
    }
}

#[test]
fn no_files_and_no_folders_import_each_other_in_a_circle() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for entry in fs::read_dir(repository().join("crates")).expect("the crates") {
        let root = entry.expect("a crate").path().join("src");
        let mut of_files = BTreeSet::new();
        let mut of_folders: BTreeMap<PathBuf, BTreeSet<(PathBuf, PathBuf)>> = BTreeMap::new();
        let mut found = Vec::new();
        files(&root, &mut found);
        for from in &found {
            for path in all_paths(&code(from), "crate::") {
                let Some(to) = file_of(&root, &path, true).filter(|to| to != from) else {
                    continue;
                };
                seen += 1;
                of_files.insert((from.clone(), to.clone()));
                // Where their ways part.
                let both = from
                    .iter()
                    .zip(to.iter())
                    .take_while(|(a, b)| a == b)
                    .count();
                let up_to = |path: &Path, count| path.iter().take(count).collect::<PathBuf>();
                let pair = (up_to(from, both + 1), up_to(&to, both + 1));
                of_folders
                    .entry(up_to(from, both))
                    .or_default()
                    .insert(pair);
            }
        }
        let all = std::iter::once(&of_files).chain(of_folders.values());
        wrong.extend(all.flat_map(circles));
    }
    assert!(seen > 2_000, "{seen}");
    let shown = wrong
        .iter()
        .map(|(from, to)| format!("{} -> {}", from.display(), to.display()));
    let shown: BTreeSet<String> = shown.collect();
    assert!(shown.is_empty(), "{shown:#?}");
}
