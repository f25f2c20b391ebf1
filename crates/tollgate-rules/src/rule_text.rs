//! The text of a document, before it is read.

use std::{borrow::Cow, sync::Arc};

use crate::{
    assembly::{OneText, assemble},
    audit::Author,
    bindings::{Bindings, HashKey},
    document_changes::all_changes,
    document_error::DocumentError,
    format::Format,
    node::hash_of,
    operator_entries::OperatorEntries,
    rule_document::{ReadText, RuleDocument},
};

/// The text of a document, or several texts that make one document together: what a [`Source`](crate::Source) gives.
///
/// ```
/// use tollgate_rules::{Format, RuleText};
///
/// let limits = RuleText::named("limits of team a", "version: 1\nrules: []", Format::Yaml).with_revision(7);
/// assert_eq!(limits.revision(), Some(7));
/// ```
#[must_use]
#[derive(Clone)]
pub struct RuleText {
    texts: Vec<OneText>,
    revision: Option<u64>,
    author: Option<Author>,
    /// For overrides that name the hash of a key, where the bindings have none.
    hash_key: Option<Arc<HashKey>>,
    /// What operators set beside it.
    pub(crate) beside: OperatorEntries,
    is_push: bool,
}

impl RuleText {
    /// A text, whose errors begin with its format.
    pub fn new(text: impl Into<String>, format: Format) -> Self {
        Self::named(format!("<{format}>"), text, format)
    }

    /// A text whose errors begin with `origin`: where it comes from.
    pub fn named(origin: impl Into<String>, text: impl Into<String>, format: Format) -> Self {
        Self::of_texts(vec![OneText::new(origin, text, format)])
    }

    /// Texts that make one document: their rules together.
    pub(crate) fn of_texts(texts: Vec<OneText>) -> Self {
        Self {
            texts,
            revision: None,
            author: None,
            hash_key: None,
            beside: OperatorEntries::default(),
            is_push: false,
        }
    }

    /// Adds a text: both make one document. Each has its own `version`.
    pub fn and(mut self, other: Self) -> Self {
        self.texts.extend(other.texts);
        self
    }

    /// The number that its source gives this document. It increases with each change: a process never goes back to a document
    /// with a lower one. Without a number, the process counts.
    pub fn with_revision(mut self, revision: u64) -> Self {
        self.revision = Some(revision);
        self
    }

    /// The number that its source gives this document.
    #[must_use]
    pub fn revision(&self) -> Option<u64> {
        self.revision
    }

    /// Who wrote it, for the audit. Default: its origin.
    pub fn by(mut self, author: Author) -> Self {
        self.author = Some(author);
        self
    }

    pub(crate) fn author(&self) -> Author {
        let origin = || self.texts.first().map_or("", |text| &*text.origin);
        self.author.clone().unwrap_or_else(|| Author::new(origin()))
    }

    /// As it is pushed to Redis: what only a process with its files could read is wrong.
    #[cfg(feature = "redis")]
    pub fn for_push(mut self) -> Self {
        self.is_push = true;
        self
    }

    /// With what operators set. What does not go with the document is not in force, and no mistake of it.
    #[cfg(feature = "redis")]
    pub(crate) fn beside(mut self, set: OperatorEntries) -> Self {
        self.beside = set;
        self
    }

    #[cfg(feature = "redis")]
    pub(crate) fn with_hash_key(mut self, hash_key: Arc<HashKey>) -> Self {
        self.hash_key = Some(hash_key);
        self
    }

    /// Reads it.
    ///
    /// # Errors
    ///
    /// All that is wrong with it.
    pub fn parse(&self, bindings: &Bindings) -> Result<RuleDocument, DocumentError> {
        self.read(bindings).map(|(document, _)| document)
    }

    /// What differs from another text, a line each: rules, groups, overrides and switches. No key of an override is part of it, but what
    /// conditions compare with is.
    ///
    /// ```
    /// use tollgate_rules::{Bindings, Format, RuleText};
    ///
    /// let text = |limit: &str, by: &str| {
    ///     let rule = format!(r#"{{ "name": "api", "limit": "{limit}", "by": "{by}" }}"#);
    ///     RuleText::new(format!(r#"{{ "version": 1, "rules": [{rule}] }}"#), Format::Json)
    /// };
    /// let (before, after) = (text("60/min", "client_ip"), text("90/min", "path"));
    /// let changes = after.changes_from(&before, &Bindings::new())?;
    /// assert_eq!(changes[0], "api: gcra 60/min → gcra 90/min, used units are kept");
    /// assert_eq!(changes[1], r#"api: by "client_ip" → "path""#);
    /// # Ok::<(), tollgate_rules::DocumentError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// All that is wrong with either.
    pub fn changes_from(
        &self,
        before: &Self,
        bindings: &Bindings,
    ) -> Result<Vec<String>, DocumentError> {
        Ok(all_changes(
            &before.parse(bindings)?,
            &self.parse(bindings)?,
        ))
    }

    /// Reads it: the document, and the tree of each text.
    pub(crate) fn read(&self, bindings: &Bindings) -> Result<ReadText, DocumentError> {
        let mut bindings = Cow::Borrowed(bindings);
        if bindings.hash_key.is_none() && self.hash_key.is_some() {
            bindings.to_mut().hash_key.clone_from(&self.hash_key);
        }
        if self.is_push {
            bindings.to_mut().is_push = true;
        }
        let (document, trees) = assemble(&self.texts, &bindings)?;
        Ok((document.beside(&self.beside), trees))
    }

    /// Equal for equal contents, whatever the revision. Times of files are not looked at, because they may stand still.
    pub(crate) fn hash(&self) -> u64 {
        // Without the push: a document that was pushed again is the same.
        let set = self.beside.all.iter();
        let set: Vec<_> = set
            .map(|entry| (entry.id, entry.node().content()))
            .collect();
        hash_of((&self.texts, set))
    }
}

impl RuleDocument {
    /// Reads a document.
    ///
    /// # Errors
    ///
    /// All that is wrong with it, with lines, columns and what would be right.
    pub fn parse(text: &str, format: Format, bindings: &Bindings) -> Result<Self, DocumentError> {
        RuleText::new(text, format).parse(bindings)
    }
}

// Shows where the texts are from. They may hold the keys of clients.
tollgate_core::debug_fields!(RuleText, it =>
    origins: it.texts.iter().map(|text| &text.origin).collect::<Vec<_>>(), revision: it.revision
);
