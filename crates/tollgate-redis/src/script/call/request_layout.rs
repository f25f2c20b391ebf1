//! Where the answers to a request are.

use smallvec::SmallVec;

/// The index of a check that is not sent. A call has fewer checks than this.
pub(super) const NO_ANSWER: u16 = u16::MAX;

/// Where the answers to a request are in the reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestLayout {
    /// For each check, the index of its answer; `NO_ANSWER` if it was not sent.
    pub(super) places: SmallVec<[u16; 4]>,
    /// The checks of rules with a cap on new keys.
    pub(crate) capped: SmallVec<[Capped; 1]>,
    /// The answers to checks of rules that block keys. What is said of the block follows each.
    pub(crate) blocks: SmallVec<[u16; 1]>,
}

/// A check of a rule with a cap on new keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capped {
    pub(crate) rule: u16,
    /// The answer that is its own.
    pub(crate) place: u16,
    /// Whether it was allowed to make a key.
    pub(crate) may_make: bool,
}

impl RequestLayout {
    /// Whether no check was sent, because no rule of the request has a limit.
    pub(crate) fn is_nothing(&self) -> bool {
        self.places.iter().all(|place| *place == NO_ANSWER)
    }

    /// Where the answer to the check at an index is, if it was sent.
    pub(crate) fn place(&self, index: usize) -> Option<usize> {
        let place = self.places.get(index).copied()?;
        (place != NO_ANSWER).then_some(usize::from(place))
    }

    pub(crate) fn places(&self) -> impl Iterator<Item = Option<usize>> {
        self.places
            .iter()
            .map(|place| (*place != NO_ANSWER).then_some(usize::from(*place)))
    }
}
