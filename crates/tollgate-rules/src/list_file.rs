//! Files that are followed: when one is to be read again; and a file of keys and networks that a list follows.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::{Duration, SystemTime},
};

use tokio::{
    runtime::Handle,
    task::{JoinSet, spawn_blocking},
    time::{sleep, timeout},
};
use tollgate::key_list::KeyList;
use tollgate_core::sync::{Mutex, lock};

use crate::{
    document_error::{DocumentError, line_of},
    format::Format,
    node::hash_of,
};

/// How often the path is looked up.
const LOOK_UP: Duration = Duration::from_millis(250);
/// How long nothing may happen there before a changed file is read: editors write in several steps.
pub(crate) const QUIET: Duration = Duration::from_millis(200);
/// How long a change waits for that at most: with the time to see it and to read it, it is in force within a second.
pub(crate) const MOST_QUIET: Duration = Duration::from_millis(600);
/// How often the contents are read where nothing is seen: on some file systems a file may change and keep its time and its length.
pub(crate) const POLL: Duration = Duration::from_secs(30);

/// When a file is to be read again, or the files of a folder. They are looked up by their path again and again: events of a folder do
/// not tell of links that lead elsewhere, of another folder in its place, and of file systems in the network.
#[derive(Debug)]
pub(crate) struct FileChanges {
    pub(crate) path: PathBuf,
    /// What was found before it was read.
    found: Found,
}

/// What tells files from those that were there before: where links lead, when each was changed, its length, and what the disk knows.
type Found = Vec<(PathBuf, SystemTime, u64, OnDisk)>;

/// On Unix the inode and its change time, which no program can set.
type OnDisk = (u64, i64, i64);

#[cfg(unix)]
fn on_disk(found: &fs::Metadata) -> OnDisk {
    use std::os::unix::fs::MetadataExt;
    (found.ino(), found.ctime(), found.ctime_nsec())
}

#[cfg(not(unix))]
fn on_disk(_: &fs::Metadata) -> OnDisk {
    OnDisk::default()
}

fn find(path: &Path) -> io::Result<Found> {
    let mut paths = vec![path.to_owned()];
    if path.is_dir() {
        let entries = fs::read_dir(path)?.flatten().map(|entry| entry.path());
        paths.extend(entries.filter(|path| Format::of_path(path).is_some()));
        paths.sort();
    }
    let found = paths.iter().map(|path| {
        let found = fs::metadata(path)?;
        let place = fs::canonicalize(path)?;
        Ok((place, found.modified()?, found.len(), on_disk(&found)))
    });
    // What goes in the meantime is gone at the next look.
    Ok(found.filter_map(io::Result::ok).collect())
}

impl FileChanges {
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            found: find(path).unwrap_or_default(),
        }
    }

    /// Waits for a change and for quiet after it, or for as long as a change may stay unseen.
    pub(crate) async fn next(&mut self) {
        let change = async { while self.is_same_after(LOOK_UP, &self.found).await {} };
        if timeout(POLL, change).await.is_ok() {
            let quiet = async {
                let mut found = self.find().await;
                while !self.is_same_after(QUIET, &found).await {
                    found = self.find().await;
                }
            };
            let _ = timeout(MOST_QUIET, quiet).await;
        }
        self.found = self.find().await;
    }

    async fn is_same_after(&self, time: Duration, found: &Found) -> bool {
        sleep(time).await;
        self.find().await == *found
    }

    async fn find(&self) -> Found {
        let path = self.path.clone();
        let found = spawn_blocking(move || find(&path).unwrap_or_default()).await;
        found.unwrap_or_default()
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

/// A file whose lines are the entries of a [list](tollgate::key_list), which are read again whenever it changes, as rule files are. All
/// are replaced at once. A file with mistakes leaves the entries in force, and an event at error level names its line.
///
/// A writer should write another file and rename it: a file that is written in place is read as it is when it has not changed for
/// 200 ms.
///
/// ```
/// use tollgate::key_list::KeyList;
/// use tollgate_rules::{Bindings, Format, ListFile, RuleDocument};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("partners.txt");
/// # std::fs::write(&path, "192.0.2.0/24  # the office\n")?;
/// let partners = ListFile::watch(&KeyList::new("partners"), path)?;
/// let text = r#"
///     version = 1
///     [[rules]]
///     name = "per-ip"
///     limit = "100/min"
///     by = "client_ip"
///     unless = { in_list = "partners", by = "client_ip" }
/// "#;
/// let bindings = Bindings::new().list(partners.list());
/// assert_eq!(RuleDocument::parse(text, Format::Toml, &bindings)?.rules().len(), 1);
/// # Ok(())
/// # }
/// ```
#[must_use = "the list follows the file for as long as this lives"]
pub struct ListFile {
    shared: Arc<Shared>,
    /// What follows the file, unless it was read once.
    _task: JoinSet<()>,
}

struct Shared {
    list: KeyList,
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// A hash of the contents that were read last.
    contents: Option<u64>,
    /// Why the file is not in force now.
    wrong: Option<String>,
}

impl ListFile {
    /// Fills a list from a file, and lets it follow the file.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, or the first line that is wrong: a service with a wrong list does not start. A call
    /// outside of a tokio runtime.
    pub fn watch(list: &KeyList, path: impl AsRef<Path>) -> Result<Self, DocumentError> {
        let path = path.as_ref();
        let error = |message: String| DocumentError::of_whole(path.display(), message);
        let runtime = Handle::try_current().map_err(|_| {
            error("a list is watched by a task: call this inside of a tokio runtime".to_owned())
        })?;
        Self::open(list, path, Some(&runtime)).map_err(error)
    }

    /// Fills a list from a file, and lets it follow the file if there is a runtime.
    pub(crate) fn open(
        list: &KeyList,
        path: &Path,
        runtime: Option<&Handle>,
    ) -> Result<Self, String> {
        // Looked up before it is read, so that no change is missed in between.
        let changes = runtime.map(|runtime| (runtime, FileChanges::new(path)));
        let shared = Arc::new(Shared {
            list: list.clone(),
            path: path.to_owned(),
            state: Mutex::default(),
        });
        shared.read()?;
        let following = Arc::clone(&shared);
        let follow = |mut changes: FileChanges| async move {
            loop {
                changes.next().await;
                let shared = Arc::clone(&following);
                // It only fails if it panics, which is shown.
                let _ = spawn_blocking(move || shared.read_again()).await;
            }
        };
        let mut task = JoinSet::new();
        if let Some((runtime, changes)) = changes {
            task.spawn_on(follow(changes), runtime);
        }
        Ok(Self {
            shared,
            _task: task,
        })
    }

    /// The list.
    pub fn list(&self) -> &KeyList {
        &self.shared.list
    }

    /// Why the file as it is now is not in force, if it is not.
    #[must_use]
    pub fn last_error(&self) -> Option<String> {
        lock(&self.shared.state).wrong.clone()
    }

    /// The same with the file.
    pub(crate) fn problem(&self) -> Option<String> {
        let path = self.shared.path.display();
        Some(format!("{path}: {}", self.last_error()?))
    }
}

impl Shared {
    /// Puts the lines of the file in force, unless they were read before.
    fn read(&self) -> Result<bool, String> {
        let bytes =
            fs::read(&self.path).map_err(|wrong| format!("the list cannot be read: {wrong}"));
        let hash = bytes.as_ref().ok().map(hash_of);
        let before = std::mem::replace(&mut lock(&self.state).contents, hash);
        if hash.is_some() && before == hash {
            return Ok(false);
        }
        let bytes = bytes?;
        let text = utf8(&bytes)?;
        let set = self.list.set(text.lines());
        set.map(|()| true).map_err(|wrong| wrong.to_string())
    }

    fn read_again(&self) {
        let wrong = match self.read() {
            Ok(false) => return,
            read => read.err(),
        };
        let (list, path) = (self.list.name(), self.path.display());
        let entries = self.list.len();
        let before = std::mem::replace(&mut lock(&self.state).wrong, wrong.clone());
        match wrong {
            None => tracing::info!(target: "tollgate", list, entries, "{path} is in force"),
            known if known == before => {}
            Some(wrong) => tracing::error!(
                target: "tollgate", list, entries,
                "{path}: the entries from before stay in force: {wrong}"
            ),
        }
    }
}

tollgate_core::debug_fields!(ListFile, it => list: it.shared.list, path: it.shared.path);

/// The files of lists that documents of a service name. A document that is read anew has the lists of the one before, with what is in
/// force of them.
#[derive(Debug, Default)]
pub(crate) struct ListFiles {
    /// Where files are followed. `None`: they are read once.
    runtime: Option<Handle>,
    open: Mutex<HashMap<ListKey, Weak<ListFile>>>,
}

/// The name of a list, its file, and whether that has hashes.
type ListKey = (String, PathBuf, bool);

impl ListFiles {
    /// Those of a service, which follows them if it has a runtime.
    pub(crate) fn of_service() -> Arc<Self> {
        let runtime = Handle::try_current().ok();
        let open = Mutex::default();
        Arc::new(Self { runtime, open })
    }

    pub(crate) fn open(&self, key: ListKey, list: &KeyList) -> Result<Arc<ListFile>, String> {
        let mut open = lock(&self.open);
        open.retain(|_, file| file.strong_count() > 0);
        if let Some(known) = open.get(&key).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let file = Arc::new(ListFile::open(list, &key.1, self.runtime.as_ref())?);
        open.insert(key, Arc::downgrade(&file));
        Ok(file)
    }
}
