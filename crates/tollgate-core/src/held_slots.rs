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

/// Slots of one request, with where they go back to when this is dropped.
#[derive(Default)]
pub(crate) struct SlotList {
    slots: SmallVec<[HeldSlot; 2]>,
    /// `None` where there are no slots.
    owner: Option<Arc<dyn SlotOwner>>,
}

impl SlotList {
    /// Adds a slot of `owner`. Slots of another one go back: a store whose decisions come from a limiter of its own has not taken
    /// them out.
    #[inline]
    pub(crate) fn push(&mut self, owner: &Arc<dyn SlotOwner>, slot: HeldSlot) {
        match &self.owner {
            None => self.owner = Some(Arc::clone(owner)),
            Some(held) if Arc::ptr_eq(held, owner) => {}
            Some(_) => self.change_owner(owner),
        }
        self.slots.push(slot);
    }

    #[cold]
    #[inline(never)]
    fn change_owner(&mut self, owner: &Arc<dyn SlotOwner>) {
        self.release();
        self.owner = Some(Arc::clone(owner));
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.owner.is_none()
    }

    /// Takes the slots out, if there are any.
    pub(crate) fn take(&mut self) -> Option<Self> {
        (!self.is_empty()).then(|| std::mem::take(self))
    }

    /// Returns the slots. None are left.
    #[inline]
    pub(crate) fn release(&mut self) {
        if let Some(owner) = self.owner.take() {
            owner.release(&self.slots);
            self.slots.clear();
        }
    }

    /// The slots, in the order of the checks.
    pub(crate) fn slots(&self) -> &[HeldSlot] {
        &self.slots
    }
}

impl Drop for SlotList {
    fn drop(&mut self) {
        self.release();
    }
}

impl fmt::Debug for SlotList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.slots).finish()
    }
}
