//! Names that have a usual word in the field keep to it: identifiers, metrics and test names of the workspace.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Names that are gone, each with the word to take instead. Words that are plain English too are left to reviews.
const GONE: &[(&str, &str)] = &[
    ("lot", "lease, grant"),
    ("lots", "leases, grants"),
    ("lender", "grantor"),
    ("thirst", "scheduled lease sizer"),
    ("owing", "overdraft"),
    ("farewell", "shutdown grace"),
    ("sieve", "bloom filter"),
    ("locker", "locked set"),
    ("hearing", "reply handler"),
    ("tally", "local usage"),
    ("seams", "tests"),
    ("dialogue", "handshake"),
    ("guests", "unlisted"),
    ("permille_reserve", "share"),
    ("reserve_permille", "share"),
    ("bound_store", "rule store"),
    ("learned_bound", "deny cache"),
    ("learned_cells", "seq cells"),
    ("why_exact", "downgrade reason"),
    ("pace_layer", "client rate limit layer"),
    ("given_up", "lost"),
    ("admitted_alone", "admitted in fallback"),
    ("beside", "with, next to, another"),
    ("whoever", "any, the one that"),
    ("may_tell", "may log"),
    ("minding", "ending at, watching"),
    ("grain", "resolution, step"),
    ("tell_bounds", "publish bounds"),
    ("told_every", "poll every"),
    ("told", "reported, shown, gets"),
    ("survey", "usage, topology refresh"),
    ("learner", "topology refresh"),
    ("ledger", "in-flight table, reference"),
    ("unsure", "tolerance"),
    ("judge", "audit"),
    ("judged", "audited"),
    ("leaves_to", "downgrade reason"),
    ("counted_alone", "local usage"),
    ("in_line", "queued"),
    ("so_many", "the number itself"),
];

/// Where such a name is plain English, with the reason.
const USUAL: &[(&str, &str)] = &[
    ("parking_lot", "the crate of that name"),
    (
        "told when to start",
        "a message about requests that know their time",
    ),
];

/// Files that list such words.
const LISTS: [&str; 2] = ["identifiers.rs", "words.rs"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str());
        match name {
            Some("target") => {}
            _ if path.is_dir() => sources(&path, found),
            Some(name) if name.ends_with(".rs") && !LISTS.contains(&name) => found.push(path),
            _ => {}
        }
    }
}

/// `ScheduledLease` and `SCHEDULED_LEASE` as `scheduled_lease`.
fn in_snake_case(name: &str) -> String {
    let mut snake = String::new();
    let mut before = '_';
    for letter in name.chars() {
        if letter.is_uppercase() && before.is_lowercase() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
        before = letter;
    }
    snake
}

/// The identifiers of a line, and those in its texts; none of a comment.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let code = line.split("//").next().unwrap_or_default();
    let name = |letter: char| letter.is_alphanumeric() || letter == '_';
    code.split(move |letter| !name(letter))
        .filter(|name| !name.is_empty())
}

fn is_in(word: &str, name: &str) -> bool {
    format!("_{name}_").contains(&format!("_{word}_"))
}

#[test]
fn no_name_is_one_that_has_a_usual_word() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for folder in ["crates", "examples", "lab", "tests", "benches"] {
        sources(&root.join(folder), &mut files);
    }
    assert!(files.len() > 300, "{}", files.len());
    let mut wrong = BTreeSet::new();
    for file in files {
        let mut text = fs::read_to_string(&file).expect("a source file");
        for (usual, _) in USUAL {
            text = text.replace(usual, "");
        }
        let names: BTreeSet<&str> = text.lines().flat_map(names).collect();
        for name in names {
            let snake = in_snake_case(name);
            for (gone, instead) in GONE.iter().filter(|(gone, _)| is_in(gone, &snake)) {
                let file = file.strip_prefix(&root).unwrap_or(&file).display();
                wrong.insert(format!("{file}: {name}: not {gone}, but {instead}"));
            }
        }
    }
    let wrong: Vec<_> = wrong.into_iter().collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
