//! What an admitted request waits for and holds.

use crate::{
    held_slots::HeldSlots,
    sync::{Mutex, lock},
};

/// What an admitted request waits for and holds. Clones of its decision share it.
#[derive(Debug)]
pub(crate) struct Claim {
    /// In µs.
    delay: u64,
    slots: Mutex<Option<HeldSlots>>,
}

impl Claim {
    pub(crate) fn of_slots(slots: HeldSlots) -> Self {
        Self {
            delay: 0,
            slots: Mutex::new(Some(slots)),
        }
    }

    pub(crate) fn delay(&self) -> u64 {
        self.delay
    }

    pub(crate) fn take_slots(&self) -> Option<HeldSlots> {
        lock(&self.slots).take()
    }
}

/// What a decision says is equal: who holds the slots is nothing that it says.
impl PartialEq for Claim {
    fn eq(&self, other: &Self) -> bool {
        self.delay == other.delay
    }
}

impl Eq for Claim {}
