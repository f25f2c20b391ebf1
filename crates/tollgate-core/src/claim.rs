//! What an admitted request waits for and holds.

use smallvec::SmallVec;

use crate::{
    algorithm::{GcraState, Taken},
    held_slots::HeldSlots,
    sync::{Mutex, lock},
};

/// What an admitted request waits for and holds. Clones of its decision share it.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    /// How long it has to wait before it starts, in µs.
    pub(crate) delay: u64,
    /// How long it has waited, in µs.
    pub(crate) waited: u64,
    pub(crate) places: Places,
    pub(crate) slots: Mutex<Option<HeldSlots>>,
}

pub(crate) type Places = SmallVec<[QueuePlace; 1]>;

/// Units that a request has taken and waits for: its place in the queue of one rule and key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueuePlace {
    /// The index of the check.
    pub check: u16,
    /// The units, of all checks on the same state.
    pub cost: u64,
    /// When they were taken, and when the state is fresh again after them.
    pub taken: Taken,
    /// The state before.
    pub before: GcraState,
}

impl QueuePlace {
    /// The place of the check with this index.
    #[must_use]
    pub const fn new(check: u16, cost: u64, taken: Taken, before: GcraState) -> Self {
        Self {
            check,
            cost,
            taken,
            before,
        }
    }
}

impl Claim {
    pub(crate) fn take_slots(&self) -> Option<HeldSlots> {
        lock(&self.slots).take()
    }
}

/// What a decision says is equal: who holds the slots is nothing that it says.
impl PartialEq for Claim {
    fn eq(&self, other: &Self) -> bool {
        (self.delay, self.waited, &self.places) == (other.delay, other.waited, &other.places)
    }
}

impl Eq for Claim {}
