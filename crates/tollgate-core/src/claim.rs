//! What an admitted request waits for and holds.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::{
    algorithm::{GcraState, Taken},
    held_slots::{HeldSlot, HeldSlots, SlotOwner},
    sync::{Mutex, get_mut, lock},
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

/// A decision's part in its claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnClaim(Option<Arc<Claim>>);

impl OwnClaim {
    pub(crate) const NONE: Self = Self(None);

    #[inline]
    pub(crate) fn new(claim: Claim) -> Self {
        Self(Some(Arc::new(claim)))
    }

    /// Adds a slot to a new claim that no decision has yet. It is made empty and filled where it lies, because it is large to
    /// move.
    #[inline]
    pub(crate) fn push_slot(&mut self, owner: &Arc<dyn SlotOwner>, slot: HeldSlot) {
        let claim = self.0.get_or_insert_with(|| {
            Arc::new(Claim {
                slots: Mutex::new(Some(HeldSlots::new(Arc::clone(owner)))),
                ..Claim::default()
            })
        });
        if let Some(claim) = Arc::get_mut(claim)
            && let Some(slots) = get_mut(&mut claim.slots)
        {
            slots.push(slot);
        }
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> Option<&Claim> {
        self.0.as_deref()
    }
}

/// A decision without a claim must cost no more to move and drop than one that could have none. So what is dropped is passed
/// on by value: while nothing has the address of a decision, it need not be copied to be matched.
impl Drop for OwnClaim {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(claim) = self.0.take() {
            drop_claim(claim);
        }
    }
}

#[inline(never)]
fn drop_claim(claim: Arc<Claim>) {
    drop(claim);
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
