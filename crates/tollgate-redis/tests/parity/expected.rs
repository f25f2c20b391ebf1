//! What the script has to answer.

use std::sync::Arc;

use tollgate_core::{Check, Decision, RuleSet, Source};
use tollgate_redis::{call::Asked, reply::Reply};

/// A request, and what memory answered.
#[derive(Debug)]
pub(crate) struct Expected {
    /// The place of its call among those that are not sent yet.
    pub(crate) call: usize,
    pub(crate) step: u64,
    pub(crate) asked: Asked,
    pub(crate) checks: Vec<Check>,
    pub(crate) rules: Arc<RuleSet>,
    pub(crate) decision: Decision,
}

impl Expected {
    pub(crate) fn compare(&self, reply: &Reply, seed: u64) {
        let by_script = reply.decision(&self.asked, &self.checks, &self.rules);
        // Memory may have answered from what it has learned.
        let verdicts = self.decision.verdicts().iter();
        let by_memory = Decision::new(
            self.decision.at(),
            verdicts.map(|verdict| verdict.from_source(Source::Store)),
            |verdict| self.rules.enforces(verdict.rule()),
        );
        assert_eq!(
            by_script,
            by_memory,
            "script and memory, seed {seed}, step {}, {:?} of {:?}",
            self.step,
            self.checks,
            self.rules.rules(),
        );
    }
}
