//! Where the states of a request lie.

use tollgate_core::{Check, store::Fingerprint};

/// Where the states of a request's checks lie. Checks of one place are decided in one step, the others one step after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Whether there are several, as on the shards of a cluster. One store decides about all states in one step.
    pub are_several: bool,
    /// The rule whose check decides where the states of the others lie, and in a request without it each key does. So that check is
    /// always decided with the others: without it, they would have another state. `None`: each key decides where its states lie.
    pub with: Option<u16>,
}

impl Places {
    /// The place of one of a request's checks.
    pub(crate) fn place(self, checks: &[Check], check: &Check) -> Option<Fingerprint> {
        let is_with = |check: &&Check| Some(check.rule()) == self.with;
        let decides = checks.iter().find(is_with).unwrap_or(check);
        self.are_several.then_some(decides.key())
    }
}
