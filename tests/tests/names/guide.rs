//! The guide is a book and rustdoc. A page names what it links to by labels; rustdoc finds them in `guide/links.md` of the crate,
//! and checks them; readers of the book find them at the foot of the page, where `TOLLGATE_BLESS=1` writes them. Pictures are
//! labels too: rustdoc finds a copy of each in `guide/pictures.md`.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::page::{Page, repository};

/// The labels of a crate, with what rustdoc finds under them: `kind@path#anchor`, or an address.
struct Labels {
    package: String,
    targets: BTreeMap<String, String>,
}

impl Labels {
    fn of(package: &str) -> Self {
        let text = DEFINITIONS.map(|name| {
            let path = repository().join(format!("crates/{package}/guide/{name}"));
            fs::read_to_string(path).unwrap_or_default()
        });
        let targets = text.iter().flat_map(|text| text.lines()).map(|line| {
            let definition = line.strip_prefix('[').and_then(|it| it.split_once("]: "));
            let (label, target) = definition.unwrap_or_else(|| panic!("{package}: {line}"));
            (label.to_owned(), target.to_owned())
        });
        Self {
            package: package.to_owned(),
            targets: targets.collect(),
        }
    }

    /// Where readers of the book find it. A name leads to the file that defines it, until docs.rs has the crates.
    fn address(&self, label: &str) -> Result<String, String> {
        let target = self.targets.get(label);
        let target = target.ok_or_else(|| format!("guide/links.md has no [{label}]"))?;
        if label
            .split('#')
            .next()
            .is_some_and(|page| page.ends_with(".md"))
        {
            let page = self.page(target).ok_or(format!("{target} is no page"))?;
            return match page == label {
                true => Ok(page),
                false => Err(format!("[{label}] is {page} in rustdoc")),
            };
        }
        if is_picture(label) {
            return Ok(format!("../pictures/{label}"));
        }
        if let Some((package, path)) = target
            .strip_prefix("https://docs.rs/crate/")
            .and_then(|it| it.split_once("/latest/source/"))
        {
            return Ok(format!("../../crates/{package}/{path}"));
        }
        if target.contains("://") {
            return Ok(target.clone());
        }
        let (kind, path) = target.split_once('@').ok_or_else(|| {
            format!("[{label}]: {target} has no kind, such as struct@ or method@")
        })?;
        let path = path.split('#').next().unwrap_or_default();
        let file = self.defines(kind, path);
        let file = file.ok_or_else(|| format!("[{label}]: no file defines {target}"))?;
        Ok(format!("../../{file}"))
    }

    /// The file that defines an item, from the root of the repository.
    fn defines(&self, kind: &str, path: &str) -> Option<String> {
        let parts: Vec<&str> = path.split("::").collect();
        let (root, name) = (parts[0], *parts.last()?);
        let package = match root {
            "crate" => self.package.clone(),
            _ => root.replace('_', "-"),
        };
        if kind == "mod" {
            let path = format!("crates/{package}/src/{}", parts[1..].join("/"));
            let files = [format!("{path}.rs"), format!("{path}/mod.rs")];
            return files
                .into_iter()
                .find(|file| repository().join(file).exists());
        }
        let parent = parts[parts.len() - 2];
        let is_of_type = parent.starts_with(char::is_uppercase);
        let line = |text: &str, begins: &[String]| {
            let mut lines = text.lines().map(str::trim_start);
            lines.any(|line| {
                let mut rest = begins
                    .iter()
                    .filter_map(|begin| line.strip_prefix(&**begin));
                rest.any(|rest| {
                    !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_')
                })
            })
        };
        let has = |text: &str| match kind {
            "variant" => line(text, &[format!("pub enum {parent}")]),
            "method" | "const" if is_of_type => {
                let is_its = |line: &str| {
                    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
                    (line.starts_with("impl") || line.contains("trait "))
                        && words.any(|word| word == parent)
                };
                let words = ["pub fn", "pub const fn", "pub async fn", "fn", "pub const"];
                // Settings that several types have are written by a macro.
                (text.lines().any(is_its) || text.contains("macro_rules!"))
                    && line(text, &words.map(|it| format!("{it} {name}")))
            }
            _ => line(
                text,
                &[
                    format!("pub {kind} {name}"),
                    format!("pub const {kind} {name}"),
                ],
            ),
        };
        // What a crate re-exports is defined in another one.
        let packages = [&*package, "tollgate-core", "tollgate", "tollgate-redis"];
        packages.into_iter().find_map(|package| {
            let mut files = Vec::new();
            sources(
                &repository().join(format!("crates/{package}/src")),
                &mut files,
            );
            files.sort();
            files.retain(|file| has(&fs::read_to_string(file).expect("a source")));
            // Of several, the one that defines the type as well, or that is in the module.
            let file = files.into_iter().min_by_key(|file| {
                let text = fs::read_to_string(file).expect("a source");
                let types = ["struct", "enum", "trait"].map(|it| format!("pub {it} {parent}"));
                let mut names = file.iter().filter_map(|part| part.to_str());
                !names.any(|it| it.trim_end_matches(".rs") == parent) && !line(&text, &types)
            })?;
            let file = file
                .strip_prefix(repository())
                .expect("a file of the repository");
            Some(file.to_str()?.to_owned())
        })
    }

    /// The page of the book that a module of the guide is, here or in another crate.
    fn page(&self, target: &str) -> Option<String> {
        let (path, anchor) = match target.split_once('#') {
            Some((path, anchor)) => (path, format!("#{anchor}")),
            None => (target, String::new()),
        };
        let module = match path.strip_prefix("mod@crate::guide::") {
            Some(module) => module,
            None => {
                let (_, module) = path.split_once("/guide/")?;
                // A program has no rustdoc; docs.rs shows its files.
                let module = module.strip_suffix("/index.html");
                module.or_else(|| path.rsplit_once('/')?.1.strip_suffix(".md"))?
            }
        };
        Some(format!("{}.md{anchor}", module.replace('_', "-")))
    }
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.push(path);
        }
    }
}

/// The files of a crate that define labels.
const DEFINITIONS: [&str; 2] = ["links.md", "pictures.md"];

fn is_picture(label: &str) -> bool {
    label.ends_with(".svg")
}

/// The pages that a crate has of the guide.
fn pages_of(package: &str) -> Vec<String> {
    let folder = repository().join(format!("crates/{package}/guide"));
    let entries = fs::read_dir(folder).into_iter().flatten();
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.into_string().expect("a name"));
    let mut names: Vec<String> = names
        .filter(|name| !DEFINITIONS.contains(&&**name))
        .collect();
    names.sort();
    names
}

const PACKAGES: [&str; 5] = [
    "tollgate",
    "tollgate-redis",
    "tollgate-rules",
    "tollgate-ledger",
    "tollgate-cli",
];
/// Those whose pages are read in the book alone: a program.
const WITHOUT_RUSTDOC: [&str; 1] = ["tollgate-cli"];

/// A page without the definitions at its foot.
fn without_foot(text: &str) -> &str {
    let mut body = text.trim_end();
    while let Some((rest, line)) = body.rsplit_once('\n') {
        let is_definition = line.starts_with('[') && line.contains("]: ");
        if !is_definition {
            break;
        }
        body = rest;
    }
    body.trim_end()
}

#[test]
fn the_foot_of_each_page_has_the_links_that_rustdoc_has() {
    let mut wrong = Vec::new();
    for package in PACKAGES {
        let labels = Labels::of(package);
        let has_rustdoc = !WITHOUT_RUSTDOC.contains(&package);
        let mut used = BTreeSet::new();
        for name in pages_of(package) {
            let path = repository().join("docs/guide").join(&name);
            let text = fs::read_to_string(&path).expect("a page of the guide");
            let body = without_foot(&text);
            let mut page = format!("{body}\n");
            let Page {
                undefined: of_page,
                links,
                ..
            } = Page::new(body);
            let in_rustdoc = |link: &&String| !link.starts_with('#') && !link.contains(':');
            if let Some(link) = links.iter().find(in_rustdoc).filter(|_| has_rustdoc) {
                wrong.push(format!(
                    "{name}: rustdoc finds no ({link}); write it as a label, [..][{link}]"
                ));
            }
            if !of_page.is_empty() {
                page.push('\n');
            }
            for label in &of_page {
                match labels.address(label) {
                    Ok(address) => page.push_str(&format!("[{label}]: {address}\n")),
                    Err(error) => wrong.push(format!("{package}, {name}: {error}")),
                }
            }
            used.extend(of_page);
            if env::var_os("TOLLGATE_BLESS").is_some() {
                fs::write(&path, &page).expect("the page is written");
            } else if page != text {
                wrong.push(format!(
                    "{name} has another foot; TOLLGATE_BLESS=1 writes it"
                ));
            }
        }
        for (label, target) in &labels.targets {
            if !used.contains(label) {
                wrong.push(format!("{package}: no page has [{label}]: {target}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// rustdoc hides lines that begin with `# `, and readers of the book would copy them.
#[test]
fn no_program_of_the_guide_has_hidden_lines() {
    for package in PACKAGES {
        for name in pages_of(package) {
            let path = repository().join("docs/guide").join(&name);
            let text = fs::read_to_string(path).expect("a page of the guide");
            for program in text.split("\n```rust").skip(1) {
                let program = program.split("\n```").next().unwrap_or_default();
                let hidden = program
                    .lines()
                    .find(|line| line.starts_with("# ") || *line == "#");
                assert_eq!(hidden, None, "{name}");
            }
        }
    }
}

/// A page of rustdoc has no file next to it, so the definition of a picture holds its bytes.
#[test]
fn rustdoc_has_the_pictures_as_their_files_are() {
    for package in PACKAGES {
        let path = repository().join(format!("crates/{package}/guide/pictures.md"));
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        let copies = text.lines().map(|line| {
            let (name, _) = line[1..].split_once("]: ").expect("a definition");
            let file = repository().join("docs/pictures").join(name);
            let bytes = STANDARD.encode(fs::read(file).expect("a picture"));
            format!("[{name}]: data:image/svg+xml;base64,{bytes}\n")
        });
        let copies: String = copies.collect();
        if env::var_os("TOLLGATE_BLESS").is_some() {
            fs::write(&path, &copies).expect("the definitions are written");
        }
        // Not `assert_eq`, which would print the bytes.
        assert!(copies == text, "{package}: TOLLGATE_BLESS=1 writes them");
    }
}

#[test]
fn each_page_of_the_guide_is_in_the_book_and_in_one_crate() {
    let guide = repository().join("docs/guide");
    let read = |path: &Path| fs::read_to_string(path).expect("a text");
    let summary = read(&repository().join("docs/SUMMARY.md"));
    let mut of_crates = BTreeSet::new();
    for package in PACKAGES {
        for name in pages_of(package) {
            let path = repository().join(format!("crates/{package}/guide/{name}"));
            let real = path.canonicalize().expect("a link to a page");
            assert_eq!(real, guide.join(&name), "{package}: {name}");
            if !WITHOUT_RUSTDOC.contains(&package) && name != "README.md" {
                let module = name.trim_end_matches(".md").replace('-', "_");
                let text = read(&real);
                let labels = Page::new(without_foot(&text)).undefined;
                let pictures = labels.iter().any(|label| is_picture(label));
                let source = read(&repository().join(format!("crates/{package}/src/guide.rs")));
                let (before, _) = source
                    .split_once(&format!("pub mod {module} {{}}"))
                    .unwrap_or_else(|| panic!("{package} has no module {module}"));
                let includes = before.rsplit("\n\n").next().unwrap_or_default();
                let has =
                    |file: &str| includes.contains(&format!("include_str!(\"../guide/{file}\")"));
                // Most pages do without pictures, whose copies are long.
                assert!(has("links.md") && has(&name), "{package}: {name}");
                assert_eq!(has("pictures.md"), pictures, "{package}: {name}");
            }
            assert!(of_crates.insert(name.clone()), "{name} is in two crates");
        }
    }
    let mut in_book = BTreeSet::new();
    for entry in fs::read_dir(&guide).expect("the guide") {
        let name = entry.expect("an entry").file_name();
        let name = name.into_string().expect("a name");
        let listed = summary.matches(&format!("(guide/{name})")).count();
        assert_eq!(listed, 1, "SUMMARY.md names {name} once");
        in_book.insert(name);
    }
    assert_eq!(in_book, of_crates);
}
