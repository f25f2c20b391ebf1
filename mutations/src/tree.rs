//! A copy of the working tree, in which mutations are made.

use std::{
    collections::BTreeSet,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::list::Mutation;

#[derive(Debug)]
pub(crate) struct Tree {
    root: PathBuf,
    builds: PathBuf,
}

impl Tree {
    /// Copies the files that git knows of, or would know of, as they are now. Files that have not changed since the last
    /// copy are left alone, so that only what has changed is built again.
    pub(crate) fn copy(repository: &Path) -> Result<Self, Box<dyn Error>> {
        let target = repository.join("target/mutations");
        let tree = Self {
            root: target.join("tree"),
            builds: target.join("builds"),
        };
        let files: BTreeSet<_> = listed(repository)?
            .into_iter()
            .filter(|file| repository.join(file).is_file())
            .collect();
        for file in &files {
            let (from, to) = (repository.join(file), tree.root.join(file));
            let bytes = fs::read(&from)?;
            if fs::read(&to).is_ok_and(|there| there == bytes) {
                continue;
            }
            if let Some(folder) = to.parent() {
                fs::create_dir_all(folder)?;
            }
            // With the permissions, and with the time of now, which is what makes it be built again.
            fs::write(&to, bytes)?;
            fs::set_permissions(&to, fs::metadata(&from)?.permissions())?;
        }
        for file in files_below(&tree.root, Path::new(""))? {
            if !files.contains(&file) {
                fs::remove_file(tree.root.join(file))?;
            }
        }
        Ok(tree)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn builds(&self) -> &Path {
        &self.builds
    }

    /// Does something while the mutation is in its file.
    pub(crate) fn with<T>(
        &self,
        mutation: &Mutation,
        run: impl FnOnce() -> Result<T, Box<dyn Error>>,
    ) -> Result<T, Box<dyn Error>> {
        let file = self.root.join(&mutation.file);
        let text = fs::read_to_string(&file)
            .map_err(|error| format!("{}: {}: {error}", mutation.name, mutation.file))?;
        fs::write(&file, mutation.applied(&text)?)?;
        let done = run();
        fs::write(&file, text)?;
        done
    }
}

/// Tracked files, and new ones that are not ignored.
fn listed(repository: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(repository)
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let names = String::from_utf8(output.stdout)?;
    Ok(names.split_terminator('\0').map(PathBuf::from).collect())
}

fn files_below(root: &Path, folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            files.extend(files_below(root, &path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}
