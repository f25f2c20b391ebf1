//! What the script has to answer.

use tollgate_core::{Check, Decision, RuleSet, Source, algorithm::GcraState, store::Hold};

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
            verdicts.map(|verdict| match verdict.source() {
                Source::Credits | Source::None => *verdict,
                _ => verdict.from_source(Source::Store),
            }),
            |verdict| self.rules.enforces(verdict.rule()),
        );
        let by_memory = with_places_of(by_memory, &self.decision);
        let by_script = with_places_of(by_script.clone(), by_script);
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

/// With the wait and the places of another decision. A state that is fresh may be forgotten, and what lapses after it is not told.
fn with_places_of(decision: Decision, other: &Decision) -> Decision {
    let places = other.queue_places().iter().map(|place| {
        let before = place.before.map(|before| {
            match before.tat + u64::from(before.rest > 0) <= other.at() {
                true => GcraState::default(),
                false => GcraState::new(before.tat, before.rest, 0),
            }
        });
        let mut place = *place;
        place.before = before;
        place
    });
    let places: Vec<Hold> = places.collect();
    match other.delay().is_zero() {
        true => decision,
        false => decision.delayed(other.delay(), places),
    }
}
