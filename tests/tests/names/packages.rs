//! What the archive of each published crate has to hold.

use std::fs;

use crate::page::{Page, repository};

#[test]
fn each_published_crate_has_both_licences_and_a_readme() {
    let read = |path: &str| fs::read_to_string(repository().join(path)).expect(path);
    let mut seen = 0;
    for entry in fs::read_dir(repository().join("crates")).expect("the crates") {
        let name = entry.expect("an entry").file_name();
        let name = name.into_string().expect("a name");
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            // Not the path that a link would have, which is what a file of Git without its mode holds.
            assert_eq!(
                read(&format!("crates/{name}/{licence}")),
                read(licence),
                "{name}"
            );
        }
        let readme = read(&format!("crates/{name}/README.md"));
        assert!(readme.starts_with(&format!("# {name}\n")), "{name}");
        // crates.io has the page and not the repository.
        for link in Page::new(&readme).links {
            assert!(link.contains("://"), "{name}: {link}");
        }
        seen += 1;
    }
    assert!(seen >= 7, "{seen}");
}
