//! Where the slots of a limiter go back to: to its store, or to what counts in its place.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::{
    held_slots::{HeldSlot, SlotOwner},
    remote::fallback::Fallback,
    source::Source,
    store::rule_store::RuleStore,
};

/// Where slots go back to.
#[derive(Debug)]
pub(crate) struct SlotReturn {
    pub(crate) store: Arc<dyn RuleStore>,
    pub(crate) fallback: Option<Arc<Fallback>>,
}

impl SlotOwner for SlotReturn {
    fn release(&self, slots: &[HeldSlot]) {
        match &self.fallback {
            Some(fallback) if slots.iter().any(is_local) => self.release_local(fallback, slots),
            _ => self.store.release(slots),
        }
    }
}

impl SlotReturn {
    /// Returns slots, some to the fallback that gave them.
    #[cold]
    fn release_local(&self, fallback: &Fallback, slots: &[HeldSlot]) {
        let (local, stored): (SmallVec<[HeldSlot; 2]>, SmallVec<[HeldSlot; 2]>) =
            slots.iter().copied().partition(is_local);
        fallback.local().release(&local);
        // Requests that wait for slots wait at the store, also while it fails.
        if let Some(waiters) = self.store.slot_waiters() {
            local.iter().for_each(|slot| waiters.wake(slot.key));
        }
        if !stored.is_empty() {
            self.store.release(&stored);
        }
    }
}

fn is_local(slot: &HeldSlot) -> bool {
    slot.source == Source::Fallback
}
