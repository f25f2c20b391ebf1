//! Policies by request: how the checks of some requests differ from their rule.

use std::sync::Arc;

use tollgate_core::{OnStoreError, Rule, RuleError, RuleErrorKind, types::CheckPolicy};

use crate::{head::Head, known_condition::Predicate};

/// How the checks of some requests differ from their rule.
#[derive(Clone, Default)]
pub(crate) struct CheckPolicies {
    exact: Vec<Arc<Predicate>>,
    /// The first that applies counts.
    store_errors: Vec<(Arc<Predicate>, OnStoreError)>,
}

impl CheckPolicies {
    pub(crate) fn add_exact(&mut self, applies: Arc<Predicate>) {
        self.exact.push(applies);
    }

    pub(crate) fn add_store_error(&mut self, applies: Arc<Predicate>, answer: OnStoreError) {
        self.store_errors.push((applies, answer));
    }

    /// The first setting that was made.
    pub(crate) fn call(&self) -> &'static str {
        match self.exact.is_empty() {
            true => "on_store_error_when",
            false => "exact_when",
        }
    }

    /// The policy of a request.
    pub(crate) fn of(&self, head: &Head<'_>) -> CheckPolicy {
        let mut policy = CheckPolicy::default();
        let mut answers = self.store_errors.iter();
        if let Some((_, answer)) = answers.find(|(applies, _)| applies(head)) {
            // One that cannot be the answer of some checks is the rule's own: `validate` has seen it.
            policy = policy.on_store_error(*answer).unwrap_or(policy);
        }
        match self.exact.iter().any(|applies| applies(head)) {
            true => policy.exact(),
            false => policy,
        }
    }

    pub(crate) fn validate(&self, rule: &Rule) -> Result<(), RuleError> {
        for (_, answer) in &self.store_errors {
            if *answer == rule.store_error_answer() {
                continue;
            }
            CheckPolicy::default()
                .on_store_error(*answer)
                .map_err(|wrong| {
                    let message = format!("on_store_error_when: {wrong}");
                    RuleError::new(RuleErrorKind::Mode, rule.name(), message)
                })?;
        }
        Ok(())
    }
}
