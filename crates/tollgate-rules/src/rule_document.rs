//! A document: rules, groups, overrides and switches.

use tollgate::{Head, RequestRule, key::KeyBuf};
use tollgate_core::{Tick, types::UnknownName};

use crate::{
    assembly::{OneText, assemble},
    bindings::{Bindings, Side},
    clock::now,
    document_error::DocumentError,
    entries::Entries,
    explanation::Explanation,
    format::Format,
    key_label::KeyLabel,
    node::{Node, Value, node},
    problems::Problems,
    reader::Reader,
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
#[derive(Clone)]
pub struct RuleDocument {
    pub(crate) entries: Entries,
}

/// A document, and the tree of each of its texts.
pub(crate) type ReadText = (RuleDocument, Vec<Node>);

impl RuleDocument {
    /// Reads a document.
    ///
    /// # Errors
    ///
    /// All that is wrong with it, with lines, columns and what would be right.
    pub fn parse(text: &str, format: Format, bindings: &Bindings) -> Result<Self, DocumentError> {
        let text = OneText::new(format!("<{format}>"), text, format);
        let (entries, _) = assemble(&[text], bindings)?;
        Ok(Self { entries })
    }

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

    pub(crate) fn limiter_rules_at(&self, now: Tick) -> Vec<tollgate_core::Rule> {
        self.entries.limiter_rules_at(now)
    }

    /// The rules at a time in microseconds since the Unix epoch.
    #[must_use]
    pub fn rules_at(&self, now: Tick) -> Vec<RequestRule> {
        self.entries.rules_at(now)
    }

    /// When an override or a switch expires next, in microseconds since the Unix epoch: the rules differ from then on.
    #[must_use]
    pub fn expires_after(&self, now: Tick) -> Option<Tick> {
        self.entries.expires_after(now)
    }

    /// What each rule does with a request as it is now, and why: for operators who ask which limit a client has met. Nothing is
    /// decided, and nothing is taken.
    ///
    /// ```
    /// use tollgate_rules::{Bindings, Format, RuleDocument, operators::Explained};
    ///
    /// let text = r#"
    ///     version = 1
    ///     [[rules]]
    ///     name = "search-per-key"
    ///     limit = "20/s"
    ///     by = "header:x-api-key"
    ///     when = { path = "/search" }
    /// "#;
    /// let document = RuleDocument::parse(text, Format::Toml, &Bindings::new())?;
    /// let request = http::Request::get("/items").body(())?;
    /// let explained = document.explain(&request.into_parts().0);
    /// assert_eq!(explained[0].outcome, Explained::ConditionFails);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn explain<'h>(&self, head: impl Into<Head<'h>>) -> Vec<Explanation> {
        self.entries.explain(&head.into(), now())
    }

    /// What the rule with this name does with a client, as it is now: from the texts that an override of it would have, one for
    /// each part that the rule counts by. Costs and plans that need a request are left out, and so are conditions, unless the limit is
    /// `none` and they decide whom it blocks.
    ///
    /// ```
    /// use tollgate_rules::{Bindings, Format, RuleDocument};
    ///
    /// let text = r#"{ "version": 1, "rules": [{ "name": "per-ip", "limit": "20/s", "by": "client_ip" }] }"#;
    /// let document = RuleDocument::parse(text, Format::Json, &Bindings::new())?;
    /// assert!(document.explain_key("per-ip", &["192.0.2.7"])?.counts());
    /// let error = document.explain_key("per-ip", &["acme"]).unwrap_err();
    /// assert!(error.to_string().contains("write an address"), "{error}");
    /// # Ok::<(), tollgate_rules::DocumentError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// There is no such rule, or its keys are not of this form.
    pub fn explain_key(&self, rule: &str, texts: &[&str]) -> Result<Explanation, DocumentError> {
        let Some(index) = self.names().position(|name| name == rule) else {
            let unknown = UnknownName::new("rule", rule, self.names());
            return Err(DocumentError::of_whole(rule, unknown.to_string()));
        };
        let nodes = texts
            .iter()
            .map(|text| node(Value::Text((*text).to_owned())));
        let node = node(Value::List(nodes.collect()));
        let problems = Problems::default();
        let reader = Reader {
            text: "",
            format: Format::Toml,
            problems: &problems,
            side: Side::default(),
        };
        let of_rule = &self.entries.rules[index].key;
        match of_rule.of_text(reader, &node, rule) {
            Some(key) => {
                let client: Vec<_> = of_rule.named().zip(texts.iter().copied()).collect();
                Ok(self.entries.explain_key(index, &key, &client, now()))
            }
            None => {
                let messages = problems.into_sorted().into_iter();
                let messages: Vec<_> = messages.map(|problem| problem.message).collect();
                Err(DocumentError::of_whole(rule, messages.join("; ")))
            }
        }
    }

    /// The rules for a limiter as they are now, one each: as [`limiter_rules`](Self::limiter_rules), with what the document
    /// counts them by.
    pub fn keyed_rules(&self) -> impl Iterator<Item = (tollgate_core::Rule, Vec<&str>)> {
        let rules = self.limiter_rules().into_iter();
        rules.zip(
            self.entries
                .rules
                .iter()
                .map(|rule| rule.key.names().collect()),
        )
    }

    /// What is right in it, and probably not meant, a sentence each: a rule by `header:authorization`, whose spellings are clients of their
    /// own, and `plans` without a `plan` that says which request has which.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        self.entries.rules.iter().flat_map(|rule| {
            let name = &rule.name.value;
            let warnings = rule.key.warnings().chain(rule.unused_plans());
            warnings.map(move |warning| format!("{name}: {warning}"))
        })
    }

    /// A key under the rule with this name, as people write it: in the clear. `None` if there is no such rule.
    #[must_use]
    pub fn key_text(&self, rule: &str, key: &KeyBuf) -> Option<String> {
        let entry = self.entries.rules.iter().find(|it| it.name.value == rule)?;
        Some(KeyLabel::whole(&entry.key).of(key))
    }

    /// The names of the rules.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.rules.iter().map(|rule| &*rule.name.value)
    }
}

tollgate_core::debug_fields!(RuleDocument, it =>
    rules: it.names().collect::<Vec<_>>(), overrides: it.entries.overrides.len(), switches: it.entries.switches.len()
);
