//! Changing rules while a service runs.

use tokio::sync::watch;
use tollgate::rules::RuleChange;

use crate::{
    author::Author, document_error::DocumentError, format::Format, live_rules::LiveRules,
    operator_entry::OperatorEntry, rule_text::RuleText, rules_in_force::Giver,
    rules_status::RulesStatus,
};

/// Changes the rules of **this process** in the name of an [`Author`]: made by [`LiveRules::handle`].
///
/// Overrides and switches that are set here lie on top of the source's document, stay when it changes, and end with the process.
/// To change all processes, change the source.
///
/// ```
/// use tollgate_rules::{Author, Bindings, Format, LiveRules, OperatorEntry};
///
/// let limits = "version = 1\n[[rules]]\nname = 'per-key'\nlimit = '20/s'\nby = 'header:x-api-key'\n";
/// let rules = LiveRules::from_text(limits, Format::Toml, Bindings::new())?;
/// let alice = rules.handle(Author::new("alice").because("ticket 4711"));
/// alice.set(OperatorEntry::limit("per-key", "acme-key-1", "500/s"))?;
/// alice.set(OperatorEntry::switch("*", "50%"))?;
/// assert_eq!(rules.document().limiter_rules()[0].quota().to_string(), "gcra 10/s");
///
/// let error = alice.set(OperatorEntry::limit("per-kye", "acme-key-1", "500/s")).unwrap_err();
/// assert!(error.to_string().contains("did you mean \"per-key\"?"));
/// alice.clear()?;
/// assert_eq!(rules.document().limiter_rules()[0].quota().to_string(), "gcra 20/s");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
#[derive(Clone, Debug)]
pub struct LiveRulesHandle {
    rules: LiveRules,
    author: Author,
}

impl LiveRules {
    /// Changes the rules of this process in the name of an author, who is part of the [audit](crate::AuditRecord).
    pub fn handle(&self, author: Author) -> LiveRulesHandle {
        LiveRulesHandle {
            rules: self.clone(),
            author,
        }
    }

    /// Hears of each change of the [status](Self::status).
    #[must_use]
    pub fn subscribe(&self) -> RulesUpdates {
        RulesUpdates {
            changed: self.shared.subscribe(),
            rules: self.clone(),
        }
    }
}

impl LiveRulesHandle {
    /// Puts another text in force, and says what changed in the first layer. When the source has another document later, that one
    /// replaces this text.
    ///
    /// # Errors
    ///
    /// All that is wrong with the text. The rules stay as they are.
    pub fn replace(
        &self,
        text: impl Into<String>,
        format: Format,
    ) -> Result<Vec<RuleChange>, DocumentError> {
        let text = RuleText::new(text, format).by(self.author.clone());
        self.rules.shared.apply(Ok(text), Giver::Process)
    }

    /// Gives one client a limit of its own, or switches rules off, into a shadow, or to a part of their limits.
    ///
    /// # Errors
    ///
    /// An unknown rule, a text that is no key of it, a limit that does not go with it or something else to switch to; an end that is
    /// over. Nothing changes.
    pub fn set(&self, entry: OperatorEntry) -> Result<Vec<RuleChange>, DocumentError> {
        self.rules.shared.set_local(self.author.clone(), entry)
    }

    /// Ends overrides and switches that were set in this process, by their [numbers](crate::operators::EntryStatus::id).
    ///
    /// # Errors
    ///
    /// There is none with one of the numbers. The store refuses the rules as they were.
    pub fn end(&self, ids: &[u64]) -> Result<Vec<RuleChange>, DocumentError> {
        self.rules.shared.end_local(self.author.clone(), Some(ids))
    }

    /// Ends all overrides and switches that were set in this process.
    ///
    /// # Errors
    ///
    /// The store refuses the rules as they were.
    pub fn clear(&self) -> Result<Vec<RuleChange>, DocumentError> {
        self.rules.shared.end_local(self.author.clone(), None)
    }
}

/// Changes of the status of [`LiveRules`], from [`LiveRules::subscribe`].
#[derive(Debug)]
pub struct RulesUpdates {
    changed: watch::Receiver<u64>,
    rules: LiveRules,
}

impl RulesUpdates {
    /// Waits for the next change, and says what is in force then. Changes that come close together may be one.
    ///
    /// # Cancel safety
    ///
    /// A change that was not waited for is there at the next call.
    pub async fn next(&mut self) -> RulesStatus {
        // The rules are kept here, so that there is always somebody to hear from.
        let _ = self.changed.changed().await;
        self.rules.status()
    }
}
