//! Links between the pages of the repository lead somewhere.

use std::{
    collections::HashMap,
    path::{Component, Path, PathBuf},
};

use crate::page::{Page, pages, repository};

/// The path that a link means, without `.` and `..`; none if it leaves the repository.
fn joined(folder: &Path, link: &str) -> Option<PathBuf> {
    let mut path = folder.to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    path.starts_with(repository()).then_some(path)
}

#[test]
fn every_link_between_pages_leads_to_a_file_and_a_heading() {
    let pages: HashMap<PathBuf, Page> = pages()
        .into_iter()
        .map(|path| (path.clone(), Page::read(&path)))
        .collect();
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for (path, page) in &pages {
        let shown = path.strip_prefix(repository()).unwrap_or(path).display();
        for label in &page.undefined {
            wrong.push(format!("{shown}: [{label}] is not defined"));
        }
        for link in &page.links {
            if link.contains("://") || link.starts_with("mailto:") || link == "undefined:" {
                continue;
            }
            checked += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => Some(path.clone()),
                file => path.parent().and_then(|folder| joined(folder, file)),
            };
            let Some(target) = target.filter(|target| target.exists()) else {
                wrong.push(format!("{shown}: {link} leads to no file"));
                continue;
            };
            let has_heading = |page: &Page| page.anchors.contains(anchor);
            if !anchor.is_empty() && !pages.get(&target).is_none_or(has_heading) {
                wrong.push(format!("{shown}: {link} leads to no heading"));
            }
        }
    }
    wrong.sort();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(checked > 200, "{checked}");
}
