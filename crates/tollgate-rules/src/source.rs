//! Where documents come from: a source of one's own, a file or a folder.

use std::{
    error::Error,
    fs,
    future::Future,
    io,
    path::{Path, PathBuf},
};

use tokio::{sync::watch, task::spawn_blocking};

use crate::{
    assembly::OneText,
    audit::Author,
    document_error::DocumentError,
    format::Format,
    list_file::{FileChanges, utf8},
    rule_text::RuleText,
    rules_status::{FleetStatus, RulesStatus},
};

/// Why a source has no document at present. Any error converts into it.
pub type SourceError = Box<dyn Error + Send + Sync>;

/// Where documents come from: a stream of them, as a [`LiveRules`](crate::LiveRules) follows it.
///
/// A file, a folder and Redis have sources in this crate. A database or a flag service takes some lines:
///
/// ```
/// use std::time::Duration;
///
/// use tollgate_rules::{Bindings, Format, LiveRules, RuleText, Source, SourceError};
/// # struct Database;
/// # impl Database {
/// #     async fn select(&self, _: &str) -> Result<(u64, String), std::io::Error> {
/// #         Ok((3, "version = 1\n[[rules]]\nname = 'api'\nlimit = '60/min'\nby = 'client_ip'".into()))
/// #     }
/// # }
///
/// struct RulesTable {
///     database: Database,
///     is_first: bool,
/// }
///
/// impl Source for RulesTable {
///     async fn next(&mut self) -> Result<RuleText, SourceError> {
///         if !std::mem::take(&mut self.is_first) {
///             tokio::time::sleep(Duration::from_secs(5)).await;
///         }
///         let (revision, text) = self.database.select("SELECT revision, text FROM limits").await?;
///         Ok(RuleText::named("table limits", text, Format::Toml).with_revision(revision))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let table = RulesTable { database: Database, is_first: true };
/// let rules = LiveRules::follow(table, Bindings::new()).await?;
/// assert_eq!(rules.status().revision, 3);
/// # Ok(())
/// # }
/// ```
///
/// # Cancel safety
///
/// A `next` is awaited to its end. Only the first one is dropped, if it takes longer than
/// [`start_within`](crate::LiveRulesBuilder::start_within); the call after it begins anew.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no source of rules",
    label = "documents cannot be read from this",
    note = "implement `tollgate_rules::Source` for it: `async fn next(&mut self) -> Result<RuleText, SourceError>`",
    note = "a file or a folder is followed by `LiveRules::watch(path, bindings)`"
)]
pub trait Source: Send + 'static {
    /// The document: for the first call as soon as it is there, for each further call when it may be another one. The same
    /// contents again are no change, so that a source may simply read them every few seconds. After an error, give the document
    /// again also if it is the same: the [status](RulesStatus::source_error) has the error until then.
    ///
    /// # Errors
    ///
    /// The document cannot be read at present. The last one stays in force, and this is called again after a second.
    fn next(&mut self) -> impl Future<Output = Result<RuleText, SourceError>> + Send;

    /// Hears what is in force after each document that it gave, for a source that tells others.
    fn on_status(&mut self, status: &RulesStatus) {
        let _ = status;
    }

    /// What it knows of the other processes that follow it, for the [status](crate::LiveRules::status). It is asked once.
    fn fleet(&self) -> Option<watch::Receiver<FleetStatus>> {
        None
    }
}

/// A file, or all files of a folder that are called `.toml`, `.yaml` or `.json`, but not `.schema.json`.
///
/// The path is looked up four times a second, so that renamed files and swapped links are seen, as Kubernetes and editors make them. A
/// change is read after 200 ms without another one, or after 600 ms. The contents are read every 30 s as well: where there are no
/// inodes, a file may change and keep its time and its length.
#[doc(alias = "RulesFile")]
#[derive(Debug)]
pub struct FileSource {
    changes: FileChanges,
    is_read: bool,
}

impl FileSource {
    /// The source at a path, which is not read yet.
    #[must_use]
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self {
            changes: FileChanges::new(path.as_ref()),
            is_read: false,
        }
    }

    /// Reads it now.
    pub(crate) fn read(&mut self) -> Result<RuleText, DocumentError> {
        self.is_read = true;
        RuleText::read_path(&self.changes.path)
    }
}

impl Source for FileSource {
    async fn next(&mut self) -> Result<RuleText, SourceError> {
        if self.is_read {
            self.changes.next().await;
        }
        let path = self.changes.path.clone();
        let read = spawn_blocking(move || RuleText::read_path(path)).await;
        // Here and not before: a call that is dropped has not read it.
        self.is_read = true;
        Ok(read??)
    }
}

impl RuleText {
    /// Reads a file, or all files of a folder that are called `.toml`, `.yaml` or `.json`: once, for programs that do not follow them. It
    /// blocks.
    ///
    /// # Errors
    ///
    /// A file that cannot be read. What is wrong with the rules is an error of [`parse`](Self::parse).
    pub fn read_path(path: impl AsRef<Path>) -> Result<Self, DocumentError> {
        let path = path.as_ref();
        let unreadable = |wrong: io::Error| cannot_be_read(path, &wrong);
        if !fs::metadata(path).map_err(unreadable)?.is_dir() {
            return Ok(Self::of_texts(vec![read_text(path)?]));
        }
        let mut paths: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(path).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            // Editors want the JSON Schema next to documents.
            let is_other = path.file_name().is_none_or(|name| {
                let name = name.to_string_lossy();
                name.starts_with('.') || name.ends_with(".schema.json")
            });
            if !is_other && path.is_file() && Format::of_path(&path).is_some() {
                paths.push(path);
            }
        }
        // In the order of their names.
        paths.sort();
        let texts: Result<Vec<OneText>, _> = paths.iter().map(|path| read_text(path)).collect();
        let texts = texts?;
        if texts.is_empty() {
            let message = "the folder has no document; add one called .toml, .yaml or .json";
            return Err(DocumentError::of_whole(path.display(), message));
        }
        Ok(Self::of_texts(texts).by(Author::new(path.display().to_string())))
    }
}

fn read_text(path: &Path) -> Result<OneText, DocumentError> {
    let origin = path.display();
    let Some(format) = Format::of_path(path) else {
        let message = "its name does not say the format; call it .toml, .yaml or .json";
        return Err(DocumentError::of_whole(origin, message));
    };
    let bytes = fs::read(path).map_err(|wrong| cannot_be_read(path, &wrong))?;
    let text = utf8(&bytes).map_err(|wrong| DocumentError::of_whole(&origin, wrong))?;
    Ok(OneText {
        folder: path.parent().map(Path::to_owned),
        ..OneText::new(origin.to_string(), text, format)
    })
}

fn cannot_be_read(path: &Path, wrong: &io::Error) -> DocumentError {
    let message = format!("the rules cannot be read: {wrong}");
    DocumentError::of_whole(path.display(), message)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        time::{Duration, SystemTime},
    };

    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::{
        bindings::Bindings,
        list_file::{MOST_QUIET, POLL, QUIET},
        live_rules::LiveRules,
    };

    /// Rules of a file in a folder. The clock stands still while a task can run.
    struct Followed {
        path: PathBuf,
        rules: LiveRules,
        _folder: tempfile::TempDir,
    }

    fn document(limit: &str) -> String {
        format!(
            "version = 1\n\n[[rules]]\nname = \"api\"\nlimit = \"{limit}\"\nby = \"constant\"\n"
        )
    }

    impl Followed {
        async fn start() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("limits.toml");
            fs::write(&path, document("3/h")).expect("written");
            let rules = LiveRules::follow(FileSource::new(&path), Bindings::new()).await;
            // The source has begun to wait.
            sleep(Duration::from_secs(1)).await;
            Self {
                path,
                rules: rules.expect("valid"),
                _folder: folder,
            }
        }

        fn write(&self, text: &str) {
            fs::write(&self.path, text).expect("written");
        }

        /// Another file under its name, of the same time.
        fn replace(&self, limit: &str) {
            let next = self.path.with_extension("next");
            fs::write(&next, document(limit)).expect("written");
            let file = fs::File::options().write(true).open(&next);
            let set = file.and_then(|file| file.set_modified(SystemTime::UNIX_EPOCH));
            set.expect("a time");
            fs::rename(&next, &self.path).expect("renamed");
        }

        /// How long it takes until a second document is in force. None was rejected meanwhile.
        async fn in_force_after(&self) -> Duration {
            let begin = Instant::now();
            while self.rules.status().revision < 2 {
                let status = self.rules.status();
                assert_eq!(status.rejected, 0, "{status:?}");
                assert!(begin.elapsed() < 10 * POLL, "{status:?}");
                sleep(Duration::from_millis(10)).await;
            }
            begin.elapsed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_written_in_two_halves_is_read_whole() {
        let followed = Followed::start().await;
        let whole = document("4/h");
        followed.write(&whole[..whole.len() / 2]);
        sleep(QUIET - Duration::from_millis(20)).await;
        followed.write(&whole);
        let took = followed.in_force_after().await;
        assert!(took < Duration::from_secs(1), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_never_rests_is_read_within_a_second() {
        let followed = Followed::start().await;
        let path = followed.path.clone();
        tokio::spawn(async move {
            for n in 0.. {
                // Of another length each time: the kernel's clock may stand still in between.
                let next = path.with_extension("next");
                fs::write(&next, document("4/h") + &"\n".repeat(n)).expect("written");
                fs::rename(&next, &path).expect("renamed");
                sleep(QUIET / 2).await;
            }
        });
        let took = followed.in_force_after().await;
        assert!(
            took >= MOST_QUIET && took < Duration::from_secs(1),
            "{took:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_takes_the_place_of_another_with_its_time_and_length_is_read() {
        let followed = Followed::start().await;
        followed.replace("3/h");
        sleep(Duration::from_secs(1)).await;
        followed.replace("4/h");
        let took = followed.in_force_after().await;
        let within = match cfg!(unix) {
            true => Duration::from_secs(1),
            false => POLL + QUIET,
        };
        assert!(took < within, "{took:?}");
    }
}
