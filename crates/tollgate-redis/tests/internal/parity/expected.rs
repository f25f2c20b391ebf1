//! What the script has to answer.

use tollgate_core::{Check, Decision, RuleSet, Source};

/// A request, and what memory answered.
#[derive(Debug)]
pub(crate) struct Expected<'a> {
    pub(crate) step: u64,
    pub(crate) checks: &'a [Check],
    pub(crate) rules: &'a RuleSet,
    pub(crate) decision: Decision,
}

impl Expected<'_> {
    pub(crate) fn compare(&self, by_script: &Decision, seed: u64) {
        // Memory may have answered from what it has learned.
        let verdicts = self.decision.verdicts().iter();
        let by_memory = Decision::new(
            self.decision.at(),
            verdicts.map(|verdict| verdict.from_source(Source::Store)),
            |verdict| self.rules.enforces(verdict.rule()),
        );
        assert_eq!(
            *by_script,
            by_memory,
            "script and memory, seed {seed}, step {}, {:?} of {:?}",
            self.step,
            self.checks,
            self.rules.rules(),
        );
    }
}
