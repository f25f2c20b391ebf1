//! A file or a folder as a source.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{sync::Notify, task::spawn_blocking, time::timeout};

use crate::{
    document_error::DocumentError,
    file_reader,
    path_watch::PathWatch,
    rule_text::RuleText,
    source::{Source, SourceError},
};

/// How long nothing may happen in the folder before a changed file is read: editors write in several steps.
const QUIET: Duration = Duration::from_millis(200);
/// How long a change waits for that at most.
const MOST_QUIET: Duration = Duration::from_secs(2);
/// How often the contents are read without an event: network file systems have none.
const POLL: Duration = Duration::from_secs(30);

/// A file with the files that it includes, or all files of a folder that are called `.toml`, `.yaml` or `.json`.
///
/// The folder is watched and not the file, so that renamed files and swapped links are seen, as Kubernetes and editors make
/// them. A change is read after 200 ms without another one. The contents are read every 30 s as well, for file systems without
/// events.
#[derive(Debug)]
pub struct FileSource {
    path: PathBuf,
    changed: Arc<Notify>,
    /// Events come for as long as it lives.
    _watch: PathWatch,
    is_read: bool,
}

impl FileSource {
    /// Watches a path, and has not read it yet.
    ///
    /// # Errors
    ///
    /// It cannot be watched: its folder is not there, say.
    pub fn new(path: impl AsRef<Path>) -> Result<Self, DocumentError> {
        let path = path.as_ref();
        let changed = Arc::new(Notify::new());
        let watch = PathWatch::new(path, Arc::clone(&changed)).map_err(|wrong| {
            let shown = path.display().to_string();
            DocumentError::of_whole(&shown, format!("it cannot be watched: {wrong}"))
        })?;
        Ok(Self {
            path: path.to_owned(),
            changed,
            _watch: watch,
            is_read: false,
        })
    }

    /// Reads it now.
    pub(crate) fn read(&mut self) -> Result<RuleText, DocumentError> {
        self.is_read = true;
        file_reader::read(&self.path)
    }
}

impl Source for FileSource {
    async fn next(&mut self) -> Result<RuleText, SourceError> {
        let changed = &self.changed;
        if std::mem::replace(&mut self.is_read, true)
            && timeout(POLL, changed.notified()).await.is_ok()
        {
            let quiet = async { while timeout(QUIET, changed.notified()).await.is_ok() {} };
            let _ = timeout(MOST_QUIET, quiet).await;
        }
        let path = self.path.clone();
        Ok(spawn_blocking(move || file_reader::read(&path)).await??)
    }
}
