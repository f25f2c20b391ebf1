//! Events of a file's folder.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

/// Notifies of changes around a path, for as long as it lives.
///
/// It watches the folder, whatever file an event names. Kubernetes swaps a link next to the file, and editors rename another file
/// over it; either ends a watch of the file itself.
#[derive(Debug)]
pub(crate) struct PathWatch {
    _watcher: RecommendedWatcher,
}

impl PathWatch {
    pub(crate) fn new(path: &Path, changed: Arc<Notify>) -> notify::Result<Self> {
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // Reading is no change, and reading the file is what follows one.
            let is_change = !matches!(
                event,
                Ok(Event {
                    kind: EventKind::Access(_),
                    ..
                })
            );
            if is_change {
                changed.notify_one();
            }
        })?;
        watcher.watch(&folder(path), RecursiveMode::NonRecursive)?;
        Ok(Self { _watcher: watcher })
    }
}

/// The folder to watch: the path itself if it is one.
fn folder(path: &Path) -> PathBuf {
    if path.is_dir() {
        return path.to_owned();
    }
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}
