//! Slots that a request holds until it ends.

use std::{fmt, sync::Arc};

use smallvec::SmallVec;

use crate::{key::Fingerprint, source::Source};

/// Slots of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldSlot {
    /// The rule's index in the rule set.
    pub rule: u16,
    /// Whom they count against.
    pub key: Fingerprint,
    /// How many.
    pub slots: u64,
    /// Above the number of all slots of this rule and key that were given before: a fencing token, which a protected resource
    /// can compare, to refuse a request that believes to run still.
    pub number: u64,
    /// Who gave them.
    pub source: Source,
}

impl HeldSlot {
    /// Slots that a check took.
    #[must_use]
    pub const fn new(rule: u16, key: Fingerprint, slots: u64, number: u64) -> Self {
        Self {
            rule,
            key,
            slots,
            number,
            source: Source::Store,
        }
    }

    /// The same, given by `source`.
    #[must_use]
    pub const fn from_source(mut self, source: Source) -> Self {
        self.source = source;
        self
    }
}

/// Where slots go back to.
pub(crate) trait SlotOwner: fmt::Debug + Send + Sync {
    fn release(&self, slots: &[HeldSlot]);
}

/// The slots of a request that was admitted. They go back when this is dropped: it cannot be cloned, so they go back once.
#[must_use = "slots go back when this is dropped"]
pub struct HeldSlots {
    slots: SmallVec<[HeldSlot; 2]>,
    owner: Arc<dyn SlotOwner>,
}

impl HeldSlots {
    #[inline]
    pub(crate) fn new(owner: Arc<dyn SlotOwner>) -> Self {
        Self {
            slots: SmallVec::new(),
            owner,
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, slot: HeldSlot) {
        self.slots.push(slot);
    }

    /// The slots, in the order of the checks.
    #[must_use]
    pub fn slots(&self) -> &[HeldSlot] {
        &self.slots
    }
}

impl Drop for HeldSlots {
    fn drop(&mut self) {
        self.owner.release(&self.slots);
    }
}

impl fmt::Debug for HeldSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.slots).finish()
    }
}
