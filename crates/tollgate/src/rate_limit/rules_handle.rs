//! Replacing the rules of a layer while requests are served.

use std::sync::{Arc, Weak};

use tollgate_core::{FNV, Limiter, Quota, RuleError, RuleErrorKind, fnv, types::RuleChange};

use crate::{
    diagnostics::wrong_setting,
    rate_limit::live_config::{EditFn, LayerRules},
    request_rule::{KeyedRule, RequestRule},
    request_settings::RequestSettings,
};

/// Replaces the rules of a layer while requests are served: see [`RateLimitLayer::handle`](crate::RateLimitLayer::handle).
///
/// A replacement is in force at once, in all services of the layer and its clones. Each request is decided by one set of
/// rules, from its first check to its last header field: one in flight ends by the rules that it began with, and settles
/// against them. No request waits or fails.
///
/// Used units stay used, but where the algorithm is another.
///
/// Cheap to clone. A handle does not keep the layer's rule names in use.
///
/// ```
/// use tollgate::{MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, key::header};
///
/// let per_key = |limit| Rule::new("per-key", Quota::gcra(limit, MINUTE)).by(header("x-api-key"));
/// let layer = RateLimitLayer::new(MemoryStore::new(), [per_key(60)])?;
/// let handle = layer.handle();
/// // The layer serves requests, here or in another task.
/// let changes = handle.replace([per_key(90)])?;
/// assert_eq!(changes[0].to_string(), "per-key: gcra 60/min → gcra 90/min, used units are kept");
///
/// // What is wrong changes nothing.
/// assert!(handle.replace([per_key(0)]).is_err());
/// assert_eq!(layer.limiter().rules().rules()[0].quota().limit(), 90);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct RulesHandle {
    pub(crate) rules: Weak<LayerRules>,
}

impl RulesHandle {
    /// Puts these rules in force in place of all that the layer has, and says what changed.
    ///
    /// All rules are replaced, or none. Rules may all be [off](tollgate_core::Rule::off).
    ///
    /// # Errors
    ///
    /// As [`RateLimitLayer::new`](crate::RateLimitLayer::new): among others, a rule name that another layer or limiter on the
    /// store counts by another quota; replace the rules of both [in one step](Self::replace_all). And a layer that is gone.
    pub fn replace(
        &self,
        rules: impl IntoIterator<Item: KeyedRule>,
    ) -> Result<Vec<RuleChange>, RuleError> {
        let changes = LayerRules::replace_all(vec![(self.upgrade()?, by_these(rules))])?;
        Ok(changes.into_iter().flatten().collect())
    }

    /// Puts rules of several layers on one store in force in one step, all or none, and says what changed by layer: for rules
    /// that layers share.
    ///
    /// ```
    /// use tollgate::{MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, RulesHandle, key::client_ip};
    ///
    /// let store = MemoryStore::new();
    /// let shared = |limit| Rule::new("per-ip", Quota::gcra(limit, MINUTE)).by(client_ip());
    /// let one = RateLimitLayer::new(store.clone(), [shared(60)])?;
    /// let other = RateLimitLayer::new(store, [shared(60)])?;
    ///
    /// assert!(one.handle().replace([shared(90)]).is_err());
    /// RulesHandle::replace_all([(&one.handle(), [shared(90)]), (&other.handle(), [shared(90)])])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`replace`](Self::replace); layers on several stores; one layer twice.
    pub fn replace_all<'a>(
        layers: impl IntoIterator<Item = (&'a Self, impl IntoIterator<Item: KeyedRule>)>,
    ) -> Result<Vec<Vec<RuleChange>>, RuleError> {
        let parts = layers
            .into_iter()
            .map(|(handle, rules)| Ok((handle.upgrade()?, by_these(rules))));
        LayerRules::replace_all(parts.collect::<Result<Vec<_>, RuleError>>()?)
    }

    /// Adds a shadow of the rule with this name that counts by another limit from now on: what it would deny, before it is in
    /// force. Clients under a plan keep the limit of their plan. Returns the name of the shadow, by which it is counted.
    ///
    /// It takes the place of an earlier preview of the rule, and stays until [`end_preview`](Self::end_preview), or until the rules
    /// are replaced. It has the rule's key, conditions, cost and plans. It knows no waits, credits, debt, blocks and ids of requests:
    /// of a rule that waits, say, it counts a denial where a request would only wait.
    ///
    /// ```
    /// use tollgate::{MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, key::header};
    ///
    /// let rule = Rule::new("per-key", Quota::gcra(60, MINUTE)).by(header("x-api-key"));
    /// let layer = RateLimitLayer::new(MemoryStore::new(), [rule])?;
    /// let shadow = layer.handle().preview("per-key", Quota::gcra(30, MINUTE))?;
    /// assert_eq!(shadow, "per-key-preview");
    /// assert!(!layer.limiter().rules().rules()[1].is_enforced());
    /// assert!(layer.handle().end_preview("per-key")?);
    /// assert_eq!(layer.limiter().rules().rules().len(), 1);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// There is no rule of this name; it is [for handlers](crate::Rule::by_handler), who check rules by name; another rule has the
    /// name of the shadow; a limit that does not go with its plans, or that the store cannot serve. Nothing changes.
    pub fn preview(&self, rule: &str, quota: Quota) -> Result<String, RuleError> {
        let name = preview_name(rule);
        let (of, shadow) = (rule.to_owned(), name.clone());
        self.edit(move |rules| {
            let found = rules.iter().find(|it| it.settings().rule.name() == of).ok_or_else(|| {
                let names = rules.iter().map(|it| it.settings().rule.name());
                RuleError::unknown("rule", &of, names)
            })?;
            if found.settings().key.is_none() {
                return Err(RuleError::new(
                    RuleErrorKind::Key,
                    of,
                    "with by_handler() a handler checks the rule by its name, and would not check a preview; add a rule that is a \
                     shadow(), and check it in the handler as well",
                ));
            }
            let preview = found.as_shadow(&shadow, quota);
            Ok(without_preview(rules, &shadow).chain([preview]).collect())
        })?;
        Ok(name)
    }

    /// Ends the [preview](Self::preview) of the rule with this name, and says whether there was one.
    ///
    /// # Errors
    ///
    /// As [`replace`](Self::replace).
    pub fn end_preview(&self, rule: &str) -> Result<bool, RuleError> {
        let shadow = preview_name(rule);
        let changed = self.edit(move |rules| Ok(without_preview(rules, &shadow).collect()))?;
        Ok(changed.iter().any(|changes| !changes.is_empty()))
    }

    fn edit(
        &self,
        edit: impl FnOnce(&[RequestRule]) -> Result<Vec<RequestRule>, RuleError> + 'static,
    ) -> Result<Vec<Vec<RuleChange>>, RuleError> {
        LayerRules::replace_all(vec![(self.upgrade()?, Box::new(edit))])
    }

    /// The limiter in force: the layer's budgets, for code outside of requests. `None` if the layer is gone.
    #[must_use]
    pub fn limiter(&self) -> Option<Limiter> {
        self.rules.upgrade().map(|rules| rules.limiter())
    }

    fn upgrade(&self) -> Result<Arc<LayerRules>, RuleError> {
        self.rules.upgrade().ok_or_else(|| {
            wrong_setting(
                "the layer whose rules are to be replaced is gone, with all of its services; make a new one",
            )
        })
    }
}

/// Puts these rules in the place of all.
fn by_these(rules: impl IntoIterator<Item: KeyedRule>) -> Box<EditFn> {
    let rules = rules.into_iter().map(Into::into).collect();
    Box::new(move |_| Ok(rules))
}

/// What a layer calls the shadow of a preview. A name has at most 64 letters: the end of a long one is hashed.
#[must_use]
pub fn preview_name(rule: &str) -> String {
    match rule.get(..47).filter(|_| rule.len() > 56) {
        Some(begin) => format!("{begin}-{:08x}-preview", fnv(FNV, rule.as_bytes()) as u32),
        None => format!("{rule}-preview"),
    }
}

/// All rules but the preview of this name.
fn without_preview<'a>(
    rules: &'a [RequestRule],
    name: &'a str,
) -> impl Iterator<Item = RequestRule> + 'a {
    let is_it = move |it: &RequestSettings| it.is_preview && it.rule.name() == name;
    let others = rules.iter().filter(move |rule| !is_it(rule.settings()));
    others.cloned()
}

tollgate_core::debug_fields!(RulesHandle, it => limiter: it.limiter());
