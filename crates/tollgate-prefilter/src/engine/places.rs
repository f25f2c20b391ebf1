//! Where the states of a request lie.

use smallvec::{SmallVec, smallvec};
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

/// Indices of checks that are decided in one step.
pub type Step = SmallVec<[u16; 4]>;

impl Places {
    /// The place of one of a request's checks.
    pub(crate) fn place(self, checks: &[Check], check: &Check) -> Option<Fingerprint> {
        let is_with = |check: &&Check| Some(check.rule()) == self.with;
        let decides = checks.iter().find(is_with).unwrap_or(check);
        self.are_several.then_some(decides.key())
    }

    /// The checks of a request, by their places.
    pub fn steps(self, checks: &[Check]) -> SmallVec<[Step; 2]> {
        let mut steps: SmallVec<[Step; 2]> = SmallVec::new();
        // A request has fewer than 65 536 checks.
        for (index, check) in (0_u16..).zip(checks) {
            let place = self.place(checks, check);
            let is_there =
                |step: &&mut Step| self.place(checks, &checks[usize::from(step[0])]) == place;
            match steps.iter_mut().find(is_there) {
                Some(step) => step.push(index),
                None => steps.push(smallvec![index]),
            }
        }
        steps
    }
}
