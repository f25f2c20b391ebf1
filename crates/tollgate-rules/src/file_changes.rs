//! Hearing that a file has changed, and what is in it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::{sync::Notify, time::timeout};

use crate::document_error::line_of;

/// How long nothing may happen in the folder before a changed file is read: editors write in several steps.
pub(crate) const QUIET: Duration = Duration::from_millis(200);
/// How long a change waits for that at most: with the time to read it, it is in force within a second.
pub(crate) const MOST_QUIET: Duration = Duration::from_millis(600);
/// How often the contents are read without an event: network file systems have none.
pub(crate) const POLL: Duration = Duration::from_secs(30);

/// When a file is to be read again.
#[derive(Debug)]
pub(crate) struct FileChanges {
    changed: Arc<Notify>,
    /// Events come for as long as it lives. `None`: a test makes them.
    _watcher: Option<RecommendedWatcher>,
}

impl FileChanges {
    /// Watches the folder, whatever file an event names. Kubernetes swaps a link next to the file, and editors rename another file over
    /// it; either ends a watch of the file itself.
    pub(crate) fn new(path: &Path) -> notify::Result<Self> {
        let changed = Arc::new(Notify::new());
        let notified = Arc::clone(&changed);
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // Reading is no change, and reading the file is what follows one.
            if !event.is_ok_and(|event| matches!(event.kind, EventKind::Access(_))) {
                notified.notify_one();
            }
        })?;
        let folder = match path.is_dir() {
            true => path.to_owned(),
            false => folder(path),
        };
        watcher.watch(&folder, RecursiveMode::NonRecursive)?;
        Ok(Self {
            changed,
            _watcher: Some(watcher),
        })
    }

    /// Without events, but for those of a test.
    #[cfg(test)]
    pub(crate) fn of(changed: Arc<Notify>) -> Self {
        let _watcher = None;
        Self { changed, _watcher }
    }

    /// Waits for a change and for quiet after it, or for as long as a change without an event may stay unseen.
    pub(crate) async fn next(&self) {
        let changed = &self.changed;
        if timeout(POLL, changed.notified()).await.is_ok() {
            let quiet = async { while timeout(QUIET, changed.notified()).await.is_ok() {} };
            let _ = timeout(MOST_QUIET, quiet).await;
        }
    }
}

/// Where a file lies.
pub(crate) fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// The text of a file.
///
/// # Errors
///
/// The line that is none.
pub(crate) fn utf8(bytes: &[u8]) -> Result<&str, String> {
    str::from_utf8(bytes).map_err(|wrong| {
        let line = line_of(bytes, wrong.valid_up_to());
        format!("line {line} is not UTF-8; save the file as UTF-8")
    })
}
