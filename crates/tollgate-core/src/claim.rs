//! What an admitted request waits for and holds.

use std::{cell::Cell, sync::Arc};

use smallvec::SmallVec;

use crate::{
    algorithm::{GcraState, Taken},
    held_slots::{HeldSlot, SlotList, SlotOwner},
    sync::{Mutex, get_mut, lock},
};

/// What an admitted request waits for and holds.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    /// How long it has to wait before it starts, in µs.
    pub(crate) delay: u64,
    /// How long it has waited, in µs.
    pub(crate) waited: u64,
    pub(crate) places: Places,
    slots: Mutex<Slots>,
}

#[derive(Debug)]
enum Slots {
    Own(SlotList),
    /// By a decision and its clones.
    Shared(Arc<Mutex<SlotList>>),
}

/// A decision's claim. Clones of the decision share its slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnClaim(Option<Box<Claim>>);

impl OwnClaim {
    pub(crate) const NONE: Self = Self(None);

    #[inline]
    pub(crate) fn new(claim: Claim) -> Self {
        Self(Some(Box::new(claim)))
    }

    /// Adds a slot of `owner`. The claim is in its decision before: the decision is moved next, and
    /// the processor would wait for what was written last.
    #[inline]
    pub(crate) fn push_slot(&mut self, owner: &Arc<dyn SlotOwner>, slot: HeldSlot) {
        let claim = self.0.get_or_insert_with(spare);
        match get_mut(&mut claim.slots) {
            Slots::Own(slots) => slots.push(owner, slot),
            shared @ Slots::Shared(_) => shared.own(owner, slot),
        }
    }

    /// Changes the places in queues.
    pub(crate) fn move_places(&mut self, change: impl FnMut(&mut QueuePlace)) {
        if let Some(claim) = &mut self.0 {
            claim.places.iter_mut().for_each(change);
        }
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> Option<&Claim> {
        self.0.as_deref()
    }

    /// Takes the slots out, if there are any: with the whole claim, where they are all that it has.
    #[inline]
    pub(crate) fn take_slots(&mut self) -> Option<HeldSlots> {
        let claim = self.0.as_deref_mut()?;
        let has_slots_alone = claim.has_slots_alone();
        match get_mut(&mut claim.slots) {
            Slots::Own(slots) if slots.is_empty() => None,
            Slots::Own(_) if has_slots_alone => Some(HeldSlots::of(self.0.take()?)),
            slots => slots.take().map(HeldSlots::alone),
        }
    }
}

/// The slots of a request that was admitted. They go back when this is dropped: it cannot be cloned, so they go back once.
#[derive(Debug)]
#[must_use = "slots go back when this is dropped"]
pub struct HeldSlots {
    #[expect(dead_code, reason = "it is dropped")]
    claim: OwnClaim,
}

impl HeldSlots {
    #[inline]
    fn of(claim: Box<Claim>) -> Self {
        Self {
            claim: OwnClaim(Some(claim)),
        }
    }

    /// These slots, in a claim of their own.
    fn alone(slots: SlotList) -> Self {
        let mut claim = spare();
        *get_mut(&mut claim.slots) = Slots::Own(slots);
        Self::of(claim)
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
fn drop_claim(mut claim: Box<Claim>) {
    claim.clear();
    // A thread that ends keeps none.
    let _ = SPARE.try_with(|spare| spare.set(Some(claim)));
}

thread_local! {
    /// An empty claim. A thread mostly ends one request after the other, and to free a claim and allocate the next one takes longer
    /// than to count a slot.
    static SPARE: Cell<Option<Box<Claim>>> = const { Cell::new(None) };
}

#[inline]
fn spare() -> Box<Claim> {
    let spare = SPARE.try_with(Cell::take).ok().flatten();
    spare.unwrap_or_default()
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
    /// The claim of a request that waits for `delay` µs at these places.
    pub(crate) fn of_waiting(delay: u64, places: Places) -> Self {
        Self {
            delay,
            places,
            ..Self::default()
        }
    }

    /// The claim of a request that has waited for `waited` µs at these places, and holds `slots`.
    pub(crate) fn of_started(waited: u64, places: Places, slots: SlotList) -> Self {
        Self {
            waited,
            places,
            slots: Mutex::new(Slots::Own(slots)),
            ..Self::default()
        }
    }

    pub(crate) fn take_shared_slots(&self) -> Option<SlotList> {
        lock(&self.slots).take()
    }

    /// Whether the request has not waited, nor waits.
    #[inline]
    fn has_slots_alone(&self) -> bool {
        self.delay == 0 && self.waited == 0 && self.places.is_empty()
    }

    /// Forgets all. The slots go back, if they were not taken out and no clone has them.
    #[inline]
    fn clear(&mut self) {
        self.delay = 0;
        self.waited = 0;
        self.places.clear();
        match get_mut(&mut self.slots) {
            Slots::Own(slots) => slots.release(),
            shared @ Slots::Shared(_) => *shared = Slots::default(),
        }
    }
}

impl Clone for Claim {
    fn clone(&self) -> Self {
        Self {
            delay: self.delay,
            waited: self.waited,
            places: self.places.clone(),
            slots: Mutex::new(Slots::Shared(lock(&self.slots).shared())),
        }
    }
}

impl Slots {
    fn take(&mut self) -> Option<SlotList> {
        match self {
            Self::Own(slots) => slots.take(),
            Self::Shared(slots) => lock(slots).take(),
        }
    }

    /// This slot, and no longer what clones share.
    #[cold]
    #[inline(never)]
    fn own(&mut self, owner: &Arc<dyn SlotOwner>, slot: HeldSlot) {
        let mut slots = SlotList::default();
        slots.push(owner, slot);
        *self = Self::Own(slots);
    }

    fn shared(&mut self) -> Arc<Mutex<SlotList>> {
        match self {
            Self::Own(slots) => {
                let shared = Arc::new(Mutex::new(std::mem::take(slots)));
                *self = Self::Shared(Arc::clone(&shared));
                shared
            }
            Self::Shared(shared) => Arc::clone(shared),
        }
    }
}

impl Default for Slots {
    fn default() -> Self {
        Self::Own(SlotList::default())
    }
}

/// What a decision says is equal: who holds the slots is nothing that it says.
impl PartialEq for Claim {
    fn eq(&self, other: &Self) -> bool {
        (self.delay, self.waited, &self.places) == (other.delay, other.waited, &other.places)
    }
}

impl Eq for Claim {}
