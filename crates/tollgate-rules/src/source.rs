//! Where documents come from.

use std::{
    error::Error,
    future::{Future, pending},
};

use crate::{
    rule_text::RuleText,
    rules_status::{Fleet, RulesStatus},
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
    fn fleet(&self) -> Option<Fleet> {
        None
    }
}

/// A text that never changes.
impl Source for RuleText {
    async fn next(&mut self) -> Result<Self, SourceError> {
        match self.take() {
            Some(text) => Ok(text),
            None => pending().await,
        }
    }
}
