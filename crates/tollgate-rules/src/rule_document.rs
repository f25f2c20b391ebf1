//! A document: rules, groups, overrides and switches.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use tollgate::{RequestRule, key::KeyBuf};
use tollgate_core::Tick;

use crate::{
    audit::DenialAudit, bindings::HashKey, clock::now, document_tables::ShedEntry,
    key_label::KeyLabel, list_file::ListFile, node::Node, operator_entry::OperatorEntry,
    override_entry::Override, rule_entry::RuleEntry, switch_entry::Switch,
};

/// The rules of a document, checked as a whole.
///
/// ```
/// use tollgate::{MemoryStore, RateLimitLayer};
/// use tollgate_rules::{Bindings, Format, RuleDocument};
///
/// let text = r#"
///     version = 1
///
///     [[rules]]
///     name = "search-per-key"
///     limit = "20/s burst 50"
///     by = "header:x-api-key"
///     when = { path = "/search/{*rest}", methods = ["GET"] }
/// "#;
/// let document = RuleDocument::parse(text, Format::Toml, &Bindings::new())?;
/// let layer = RateLimitLayer::new(MemoryStore::new(), document.rules())?;
///
/// let error = RuleDocument::parse(&text.replace("20/s", "20/sce"), Format::Toml, &Bindings::new()).unwrap_err();
/// assert!(error.to_string().contains("did you mean \"sec\"?"), "{error}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct RuleDocument {
    pub(crate) rules: Vec<RuleEntry>,
    /// By rule, the more specific ones of its groups.
    pub(crate) behind: Vec<Vec<usize>>,
    /// In the order of their rules, once they are sorted.
    pub(crate) overrides: Vec<Override>,
    /// By rule, which overrides are its own.
    pub(crate) of_rule: Vec<Range<usize>>,
    pub(crate) switches: Vec<Switch>,
    /// For the overrides that name the hash of a key.
    pub(crate) hash_key: Option<Arc<HashKey>>,
    pub(crate) denials: Arc<DenialAudit>,
    /// What the document says of the whole: how addresses are found, of lists, how load is shed.
    pub(crate) said: BTreeMap<&'static str, String>,
    /// The files of lists that it names, which are followed for as long as it is there.
    pub(crate) lists: Vec<Arc<ListFile>>,
    pub(crate) shed: Option<ShedEntry>,
    /// What operators set that does not go with the document, and why.
    pub(crate) unfit: Vec<(Arc<OperatorEntry>, String)>,
}

/// A document, and the tree of each of its texts.
pub(crate) type ReadText = (RuleDocument, Vec<Node>);

impl RuleDocument {
    /// The rules for a layer, as they are now: overrides and switches that have expired do not count.
    #[must_use]
    pub fn rules(&self) -> Vec<RequestRule> {
        self.rules_at(now())
    }

    /// The rules for a [`Limiter`](tollgate::Limiter), as they are now. Keys, conditions, costs and plans are for the caller to
    /// choose, and so are overrides and rollouts: they need a request.
    #[must_use]
    pub fn limiter_rules(&self) -> Vec<tollgate_core::Rule> {
        self.limiter_rules_at(now())
    }

    /// The rules at a time in microseconds since the Unix epoch.
    #[must_use]
    pub fn rules_at(&self, now: Tick) -> Vec<RequestRule> {
        let rules = 0..self.rules.len();
        rules.flat_map(|index| self.rules_of(index, now)).collect()
    }

    /// When an override or a switch expires next, in microseconds since the Unix epoch: the rules differ from then on.
    #[must_use]
    pub fn expires_after(&self, now: Tick) -> Option<Tick> {
        let overrides = self.overrides.iter().map(|entry| entry.term.until);
        let all = overrides.chain(self.switches.iter().map(|switch| switch.term.until));
        all.filter(|until| *until > now && *until < Tick::MAX).min()
    }

    /// The rules for a limiter as they are now, one each: as [`limiter_rules`](Self::limiter_rules), with what the document
    /// counts them by.
    pub fn keyed_rules(&self) -> impl Iterator<Item = (tollgate_core::Rule, Vec<&str>)> {
        let by = self.rules.iter().map(|rule| rule.key.names().collect());
        self.limiter_rules().into_iter().zip(by)
    }

    /// What is right in it, and probably not meant, a sentence each: a rule by `header:authorization`, whose spellings are clients of their
    /// own, and `plans` without a `plan` that says which request has which.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        self.rules.iter().flat_map(|rule| {
            let name = &rule.name;
            let warnings = rule.key.warnings().chain(rule.unused_plans());
            warnings.map(move |warning| format!("{name}: {warning}"))
        })
    }

    /// A key under the rule with this name, as people write it: in the clear. `None` if there is no such rule.
    #[must_use]
    pub fn key_text(&self, rule: &str, key: &KeyBuf) -> Option<String> {
        let entry = self.rules.iter().find(|it| it.name == rule)?;
        Some(KeyLabel::whole(&entry.key).of(key))
    }

    /// The names of the rules.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|rule| &*rule.name)
    }
}

tollgate_core::debug_fields!(RuleDocument, it =>
    rules: it.names().collect::<Vec<_>>(), overrides: it.overrides.len(), switches: it.switches.len()
);
