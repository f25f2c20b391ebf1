//! Setting up rules that follow a source.

use std::{fmt::Display, path::Path, time::Duration};

use tokio::{runtime::Handle, time::timeout};

use crate::{
    audit::{AuditSink, AuditSinks},
    bindings::Bindings,
    document_error::DocumentError,
    file_source::{FileSource, read},
    format::Format,
    live_rules::LiveRules,
    rule_text::RuleText,
    rules_in_force::RulesInForce,
    source::Source,
};

/// How long the first document is waited for.
const START_WITHIN: Duration = Duration::from_secs(10);

/// What may be set about [`LiveRules`]. Made by [`LiveRules::builder`].
#[must_use = "nothing is followed until a source is given"]
#[derive(Debug)]
pub struct LiveRulesBuilder {
    bindings: Bindings,
    fallback: Option<RuleText>,
    sinks: AuditSinks,
    start_within: Duration,
}

impl LiveRules {
    /// Rules of a text, which [`set_text`](Self::set_text) replaces.
    ///
    /// Inside of a tokio runtime, with its timer, overrides and switches end when their time is over. Elsewhere they end with the
    /// next change of the rules.
    ///
    /// # Errors
    ///
    /// All that is wrong with the text.
    pub fn from_text(
        text: &str,
        format: Format,
        bindings: Bindings,
    ) -> Result<Self, DocumentError> {
        Self::builder(bindings).from_text(text, format)
    }

    /// Rules of a file, or of all files of a folder that are called `.toml`, `.yaml` or `.json`, which are read again whenever they change: see [`FileSource`].
    ///
    /// # Errors
    ///
    /// All that is wrong with the documents, a file that cannot be read, or a call outside of a tokio runtime: a service with
    /// wrong rules does not start.
    pub fn watch(path: impl AsRef<Path>, bindings: Bindings) -> Result<Self, DocumentError> {
        Self::builder(bindings).watch(path)
    }

    /// Rules of a [`Source`], as soon as it has given its first document.
    ///
    /// # Errors
    ///
    /// The source has no document, or gave none within 10 s; all that is wrong with it; a call outside of a tokio runtime.
    pub async fn follow(source: impl Source, bindings: Bindings) -> Result<Self, DocumentError> {
        Self::builder(bindings).follow(source).await
    }

    /// Rules with settings of their own.
    pub fn builder(bindings: Bindings) -> LiveRulesBuilder {
        LiveRulesBuilder {
            bindings,
            fallback: None,
            sinks: AuditSinks::default(),
            start_within: START_WITHIN,
        }
    }
}

impl LiveRulesBuilder {
    /// The rules to start with where the source has no document at the start, or a wrong one. They are revision 0, and the first
    /// good document takes their place. Without a fallback such a service does not start.
    ///
    /// ```
    /// use tollgate_rules::{Bindings, Format, LiveRules, RuleText, Source, SourceError};
    ///
    /// struct Down;
    ///
    /// impl Source for Down {
    ///     async fn next(&mut self) -> Result<RuleText, SourceError> {
    ///         Err("no connection".into())
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let error = LiveRules::follow(Down, Bindings::new()).await.unwrap_err();
    /// assert_eq!(error.to_string(), "the source of the rules: no connection");
    ///
    /// let fallback = "version = 1\n[[rules]]\nname = 'api'\nlimit = '60/min'\nby = 'client_ip'";
    /// let rules = LiveRules::builder(Bindings::new())
    ///     .fallback(RuleText::new(fallback, Format::Toml))
    ///     .follow(Down)
    ///     .await
    ///     .unwrap();
    /// assert_eq!(rules.status().revision, 0);
    /// # }
    /// ```
    pub fn fallback(mut self, text: RuleText) -> Self {
        self.fallback = Some(text);
        self
    }

    /// How long the first document is waited for. Default: 10 s.
    pub fn start_within(mut self, patience: Duration) -> Self {
        self.start_within = patience;
        self
    }

    /// Gives every change of rules to this sink too: see [`AuditSink`]. Called twice, both get all.
    pub fn audit(mut self, sink: impl AuditSink) -> Self {
        self.sinks.add(sink);
        self
    }

    /// As [`LiveRules::from_text`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn from_text(self, text: &str, format: Format) -> Result<LiveRules, DocumentError> {
        let mut text = RuleText::new(text, format);
        let rules = RulesInForce::new(self.bindings, self.sinks, text.clone(), false)?;
        let rules = LiveRules::new(rules);
        if let Ok(runtime) = Handle::try_current() {
            // Nothing comes after it, and what has a time ends.
            text.take();
            rules.start(&runtime, text);
        }
        Ok(rules)
    }

    /// As [`LiveRules::watch`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn watch(self, path: impl AsRef<Path>) -> Result<LiveRules, DocumentError> {
        let path = path.as_ref().to_owned();
        let runtime = runtime(path.display())?;
        // Watched before it is read, so that no change is missed in between.
        let mut source = FileSource::new(&path)?;
        let mut rules = RulesInForce::new(self.bindings, self.sinks, source.read()?, false)?;
        rules.read = Some(Box::new(move || read(&path)));
        let rules = LiveRules::new(rules);
        rules.start(&runtime, source);
        Ok(rules)
    }

    /// As [`LiveRules::follow`].
    ///
    /// # Errors
    ///
    /// As there; with a [fallback](Self::fallback), all that is wrong with it.
    pub async fn follow(self, mut source: impl Source) -> Result<LiveRules, DocumentError> {
        let runtime = runtime("the source of the rules")?;
        let first = match timeout(self.start_within, source.next()).await {
            Ok(first) => first,
            Err(_) => Err(format!(
                "it gave no document within {:?}; give it longer, or rules to start with, by `LiveRules::builder`",
                self.start_within
            )
            .into()),
        };
        let is_fallback = self.fallback.is_some();
        let (text, first) = match (self.fallback, first) {
            (Some(fallback), first) => (fallback, Some(first)),
            (None, Ok(first)) => (first, None),
            (None, Err(wrong)) => {
                let wrong = wrong.downcast::<DocumentError>();
                let origin = "the source of the rules";
                return Err(wrong.map_or_else(
                    |wrong| DocumentError::of_whole(origin, wrong.to_string()),
                    |wrong| *wrong,
                ));
            }
        };
        let rules = RulesInForce::new(self.bindings, self.sinks, text, is_fallback)?;
        let rules = LiveRules::new(rules);
        if let Some(first) = first {
            rules.shared.take(first);
        }
        rules.start(&runtime, source);
        Ok(rules)
    }
}

fn runtime(origin: impl Display) -> Result<Handle, DocumentError> {
    let message = "rules are watched by a task: call this inside of a tokio runtime";
    Handle::try_current().map_err(|_| DocumentError::of_whole(origin, message))
}
