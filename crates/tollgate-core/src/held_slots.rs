//! Slots that requests hold, and how they come back: a decision holds them until a ticket takes them, or the layer does for the body of
//! its response. They go back when the last that holds them is dropped.

use std::{
    any::Any,
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, fence},
    },
};

use crate::{
    key::Fingerprint,
    slot_waiters,
    sync::{AtomicU64, Mutex, Ordering, lock},
};

/// The slots of a key in memory: as many are in use as there are handles of it, beside that of its table.
///
/// So a slot comes back without a lock, a look-up, or a handle of its store: these would take longer than all that its request took.
/// New handles are made under the lock of the table alone, which has looked at the number before.
pub(crate) struct SlotCount {
    key: Fingerprint,
    /// Those in use beyond one for each handle.
    more: AtomicU64,
}

impl SlotCount {
    pub(crate) fn new(key: Fingerprint) -> Arc<Self> {
        Arc::new(Self {
            key,
            more: AtomicU64::new(0),
        })
    }

    pub(crate) fn in_use(self: &Arc<Self>) -> u64 {
        let handles = Arc::strong_count(self) as u64 - 1;
        let in_use = handles.saturating_add(self.more.load(Ordering::Relaxed));
        // What a request did comes before what the next one does that gets its slot.
        fence(Ordering::Acquire);
        in_use
    }

    /// Counts slots that have no handle.
    pub(crate) fn add(&self, slots: u64) {
        self.more.fetch_add(slots, Ordering::Relaxed);
    }

    pub(crate) fn release(&self, slots: u64) {
        let less = |more: u64| Some(more.saturating_sub(slots));
        let _ = (self.more).fetch_update(Ordering::Release, Ordering::Relaxed, less);
    }

    /// Takes slots that are free.
    pub(crate) fn hold(self: &Arc<Self>, slots: u64) -> HeldSlots {
        let one = Slot(Some(Arc::clone(self)));
        match slots {
            0 | 1 => HeldSlots(Held::One(one)),
            _ => {
                self.add(slots - 1);
                HeldSlots::of(MoreSlots(one, slots - 1))
            }
        }
    }
}

/// A slot of a key. It is free when this is dropped.
struct Slot(Option<Arc<SlotCount>>);

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(count) = self.0.take() {
            let key = count.key;
            drop(count);
            slot_waiters::wake_after_count(key);
        }
    }
}

/// Several slots of a key.
struct MoreSlots(Slot, u64);

impl Drop for MoreSlots {
    fn drop(&mut self) {
        if let Some(count) = &self.0.0 {
            count.release(self.1);
        }
    }
}

/// The slots of a request that was admitted. They go back when this is dropped: it cannot be cloned, so they go back once.
#[must_use = "slots go back when this is dropped"]
pub struct HeldSlots(Held);

enum Held {
    One(Slot),
    /// What returns slots when it is dropped; shared by the clones of a decision.
    Shared(Arc<Mutex<Vec<Guard>>>),
}

type Guard = Box<dyn Any + Send + Sync>;

impl HeldSlots {
    /// Slots that go back when `guard` is dropped.
    pub(crate) fn of(guard: impl Any + Send + Sync) -> Self {
        Self::shared(vec![Box::new(guard)])
    }

    fn shared(guards: Vec<Guard>) -> Self {
        Self(Held::Shared(Arc::new(Mutex::new(guards))))
    }

    /// Those that go back together, where there are some.
    #[must_use = "slots go back when they are dropped"]
    pub fn both(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(Self::shared(vec![Box::new(one), Box::new(other)])),
            (one, other) => one.or(other),
        }
    }
}

crate::debug_fields!(HeldSlots);

/// The slots that a decision and its clones hold, until one of them takes them out.
#[derive(Default)]
pub(crate) struct SharedSlots {
    /// Most decisions hold none, and need no lock to know it.
    holds: AtomicBool,
    slots: Mutex<Option<HeldSlots>>,
}

impl SharedSlots {
    pub(crate) fn new(slots: Option<HeldSlots>) -> Self {
        Self {
            holds: AtomicBool::new(slots.is_some()),
            slots: Mutex::new(slots),
        }
    }

    /// Whether it holds some, or its clones have.
    #[inline]
    pub(crate) fn holds(&self) -> bool {
        self.holds.load(Ordering::Relaxed)
    }

    /// Takes the slots out, once: the first caller gets them.
    #[inline]
    pub(crate) fn take(&self) -> Option<HeldSlots> {
        self.holds().then(|| self.take_held())?
    }

    fn take_held(&self) -> Option<HeldSlots> {
        let mut slots = lock(&self.slots);
        self.holds.store(false, Ordering::Relaxed);
        match slots.take()?.0 {
            Held::One(one) => Some(HeldSlots(Held::One(one))),
            Held::Shared(guards) => {
                let guards = mem::take(&mut *lock(&guards));
                (!guards.is_empty()).then(|| HeldSlots::shared(guards))
            }
        }
    }
}

impl Clone for SharedSlots {
    fn clone(&self) -> Self {
        if !self.holds() {
            return Self::default();
        }
        let mut slots = lock(&self.slots);
        let guards = match slots.take().map(|slots| slots.0) {
            None => return Self::default(),
            Some(Held::One(one)) => Arc::new(Mutex::new(vec![Box::new(one) as Guard])),
            Some(Held::Shared(guards)) => guards,
        };
        *slots = Some(HeldSlots(Held::Shared(Arc::clone(&guards))));
        Self::new(Some(HeldSlots(Held::Shared(guards))))
    }
}

crate::debug_fields!(SharedSlots, it => holds: it.holds());
