//! Tables in documentation are tables: rows that stand apart from their head are shown as text with bars.

use std::{fs, path::Path};

/// The text of a line of documentation.
fn documented(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = ["//!", "///"]
        .iter()
        .find_map(|mark| line.strip_prefix(mark));
    text.map(str::trim)
}

fn is_row(text: &str) -> bool {
    text.len() > 1 && text.starts_with('|') && text.ends_with('|')
}

fn is_rule(text: &str) -> bool {
    is_row(text) && text.contains("---") && text.chars().all(|c| "|-: ".contains(c))
}

fn cells(row: &str) -> usize {
    // A bar that is meant as one is written `\|`.
    row.replace("\\|", "").matches('|').count()
}

/// The rows of a text that are in no table, by their line.
fn stray(text: &str) -> Vec<usize> {
    let lines: Vec<_> = text.lines().map(documented).collect();
    let mut stray = Vec::new();
    let mut columns = None;
    for (place, line) in lines.iter().enumerate() {
        let Some(row) = line.filter(|text| is_row(text)) else {
            columns = None;
            continue;
        };
        match columns {
            Some(columns) if cells(row) == columns => {}
            None if lines
                .get(place + 1)
                .is_some_and(|next| next.is_some_and(is_rule)) =>
            {
                columns = Some(cells(row));
            }
            _ => stray.push(place + 1),
        }
    }
    stray
}

fn look_through(folder: &Path, found: &mut Vec<String>, tables: &mut usize) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            look_through(&path, found, tables);
        } else if path.extension().is_some_and(|it| it == "rs") {
            let text = fs::read_to_string(&path).expect("a text");
            *tables += text
                .lines()
                .filter_map(documented)
                .filter(|line| is_rule(line))
                .count();
            let lines = stray(&text).into_iter();
            found.extend(lines.map(|line| format!("{}:{line}", path.display())));
        }
    }
}

#[test]
fn every_row_of_the_documentation_is_in_a_table() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut found, mut tables) = (Vec::new(), 0);
    for member in fs::read_dir(crates).expect("the crates") {
        let source = member.expect("an entry").path().join("src");
        if source.is_dir() {
            look_through(&source, &mut found, &mut tables);
        }
    }
    assert_eq!(found, Vec::<String>::new());
    assert!(tables > 20, "{tables}");
}

#[test]
fn a_row_apart_and_one_of_other_columns_are_found() {
    let text = "//! | a | b |\n//! | --- | --- |\n//! | 1 | 2 |\n//!\n//! | 3 | 4 |\n//! text\n";
    assert_eq!(stray(text), [5]);
    assert_eq!(stray("//! | a |\n//! | --- |\n//! | 1 | 2 |\n"), [3]);
}
