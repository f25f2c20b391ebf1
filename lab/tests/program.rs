//! The program as it is called.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tollgate_lab::table::COLUMNS;

fn simulate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tollgate-lab"))
        .arg("simulate")
        .args(["--seconds", "4"])
        .args(arguments)
        .output()
        .expect("the program runs")
}

fn table(arguments: &[&str]) -> String {
    let output = simulate(arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_same_seed_prints_the_same_table() {
    let table_of = |seed| table(&["--seed", seed, "--only", "zipf", "--only", "dying"]);
    assert_eq!(table_of("7"), table_of("7"));
    assert_ne!(table_of("7"), table_of("8"));
}

#[test]
fn each_row_has_all_columns() {
    let table = table(&["--only", "bursts"]);
    let mut lines = table.lines();
    let head = lines.next().expect("a head");
    let names: Vec<_> = head.trim_matches('|').split('|').map(str::trim).collect();
    assert_eq!(names, COLUMNS);
    assert_eq!(lines.clone().count(), 1 + 8);
    for line in lines {
        assert_eq!(line.split('|').count(), COLUMNS.len() + 2, "{line}");
        assert_eq!(line.len(), head.len(), "{line}");
    }
}

#[test]
fn one_workload_one_consistency_and_another_round_trip_can_be_chosen() {
    let arguments = [
        "--only",
        "cold",
        "--consistency",
        "exact",
        "--round-trip",
        "2ms",
    ];
    let table = table(&arguments);
    let row = table.lines().nth(2).expect("a row");
    let cells: Vec<_> = row.split('|').map(str::trim).collect();
    assert_eq!((cells[1], cells[2], cells[4]), ("cold", "exact", "1.000"));
    let median: f64 = cells[6].parse().expect("milliseconds");
    assert!((1.5..3.0).contains(&median), "{median}");
    assert_eq!(table.lines().count(), 3);
}

#[test]
fn a_name_that_is_none_is_repeated_with_those_there_are() {
    for (option, name, known) in [
        ("--only", "warm", "hoarding"),
        ("--consistency", "loose", "leased-<percent>"),
        ("--round-trip", "5 minutes", "500us"),
    ] {
        let output = simulate(&[option, name]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success());
        assert!(said.contains(name) && said.contains(known), "{said}");
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The pictures of the documentation, as they are in the repository.
fn folder() -> PathBuf {
    repository().join("docs/pictures")
}

/// The pictures of the guide's pages in rustdoc: the text of each crate that has some.
fn guide_links(crates: &Path) -> Vec<(String, String)> {
    let packages = fs::read_dir(crates).expect("a folder");
    let mut links: Vec<_> = packages
        .filter_map(|package| {
            let package = package.expect("a crate").path();
            let text = fs::read_to_string(package.join("guide/pictures.md")).ok()?;
            let name = package.file_name().expect("a name").to_string_lossy();
            Some((name.into_owned(), text))
        })
        .collect();
    links.sort();
    links
}

fn pictures_in(folder: &Path) -> Vec<(String, String)> {
    let files = fs::read_dir(folder).expect("a folder");
    let files = files.map(|file| file.expect("a file").path());
    let svg = files.filter(|file| file.extension().is_some_and(|end| end == "svg"));
    let mut pictures: Vec<_> = svg
        .map(|file| {
            let name = file.file_name().expect("a name").to_string_lossy();
            let text = fs::read_to_string(&file).expect("text");
            (name.into_owned(), text)
        })
        .collect();
    pictures.sort();
    pictures
}

#[test]
fn the_pictures_of_the_documentation_are_those_of_the_code() {
    let is_blessed = std::env::var_os("TOLLGATE_BLESS").is_some();
    let root = match is_blessed {
        true => repository(),
        false => Path::new(env!("CARGO_TARGET_TMPDIR")).join("pictures"),
    };
    let (drawn, crates) = (root.join("docs/pictures"), root.join("crates"));
    if !is_blessed {
        // Without those that an earlier program has drawn.
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&drawn).expect("a folder");
        for package in ["tollgate", "tollgate-redis"] {
            fs::create_dir_all(crates.join(package).join("guide")).expect("a folder");
        }
    }
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate-lab"))
        .args(["pictures", "--folder"])
        .arg(&drawn)
        .arg("--crates")
        .arg(&crates)
        .output()
        .expect("the program runs");
    assert!(output.status.success(), "{output:?}");
    let (of_guide, checked_in) = (
        guide_links(&crates),
        guide_links(&repository().join("crates")),
    );
    assert_eq!(of_guide.len(), 2);
    // Not `assert_eq`, which would print them.
    assert!(
        of_guide == checked_in,
        "guide/pictures.md of a crate: TOLLGATE_BLESS=1"
    );
    let (drawn, checked_in) = (pictures_in(&drawn), pictures_in(&folder()));
    let names = |pictures: &[(String, String)]| -> Vec<String> {
        pictures.iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(names(&drawn), names(&checked_in), "TOLLGATE_BLESS=1");
    for ((name, drawn), (_, checked_in)) in drawn.iter().zip(&checked_in) {
        let mut lines = drawn.lines().zip(checked_in.lines());
        let differs = lines.find(|(drawn, checked_in)| drawn != checked_in);
        assert!(
            differs.is_none() && drawn.len() == checked_in.len(),
            "the code draws another {name}: look at it, and write it with TOLLGATE_BLESS=1. {differs:?}"
        );
    }
}

#[test]
fn a_picture_can_be_read_in_light_and_dark_and_aloud() {
    for (name, text) in pictures_in(&folder()) {
        assert!(text.len() <= 30_000, "{name} has {} bytes", text.len());
        assert!(text.contains("@media(prefers-color-scheme:dark)"), "{name}");
        let picture = roxmltree::Document::parse(&text).expect(&name);
        let root = picture.root_element();
        let named = |id| {
            let mut all = root.children();
            let one = all.find(|node| node.attribute("id") == Some(id));
            one.and_then(|node| node.text()).unwrap_or_default().len()
        };
        assert!(named("title") > 10 && named("description") > 100, "{name}");
        let reads = root.attribute("aria-labelledby");
        assert_eq!(reads, Some("title description"), "{name}");
        // Nothing is loaded, and each colour is that of a class.
        for node in root.descendants() {
            for wrong in ["href", "src", "fill", "stroke", "style"] {
                assert!(!node.has_attribute(wrong), "{name}: {wrong}");
            }
        }
    }
}

#[test]
fn no_text_of_a_picture_leaves_it() {
    for (name, text) in pictures_in(&folder()) {
        let picture = roxmltree::Document::parse(&text).expect(&name);
        let root = picture.root_element();
        let number = |node: roxmltree::Node<'_, '_>, what| -> f64 {
            let number = node.attribute(what).expect("a number");
            number.parse().expect("a number")
        };
        // Around the picture is a margin of paper.
        let margin = 24.0;
        let (width, height) = (
            number(root, "width") - margin,
            number(root, "height") - margin,
        );
        let texts = root.descendants().filter(|node| node.has_tag_name("text"));
        for node in texts {
            let class = node.attribute("class").unwrap_or_default();
            let is = |name| class.split(' ').any(|one| one == name);
            // More than the letters of a usual font take on average.
            let letter = if is("small") { 6.3 } else { 7.6 };
            let text = node.text().unwrap_or_default();
            let length = text.chars().count() as f64 * letter;
            let (x, y) = (number(node, "x"), number(node, "y"));
            let left = match (is("mid"), is("end")) {
                (true, _) => x - length / 2.0,
                (_, true) => x - length,
                _ => x,
            };
            let fits = left >= 0.0 && left + length <= width && y > 10.0 && y < height;
            assert!(fits, "{name}: {text:?} from {left} to {}", left + length);
        }
    }
}
