//! The records of [reservations](crate::types::Reservation) that are open in a memory store.
//!
//! A text is the id of its record, and a hash of it with a seed of the store, which tells texts of others from those that are gone.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
};

use crate::{
    held_slots::HeldSlots,
    reservation::Reservation,
    sync::{AtomicU64, Mutex, Ordering},
    time::Tick,
};

/// The open records of a memory store.
#[derive(Default)]
pub(super) struct Reservations {
    pub(super) open: Mutex<HashMap<u128, Record>>,
    /// No record ends before this time, also where the one that would have is gone; 0: there is none. Decisions read it without the lock.
    pub(super) first_end: AtomicU64,
    /// The slots of all records, which end by themselves at some time.
    pub(super) slots: AtomicU64,
    seed: RandomState,
}

pub(super) struct Record {
    pub(super) ends: Tick,
    pub(super) bytes: Vec<u8>,
    /// They are counted while the record is open.
    pub(super) slots: Vec<HeldSlots>,
}

impl Reservations {
    pub(super) fn text(&self, id: u128) -> Reservation {
        let hash = self.seed.hash_one(id);
        Reservation::of_store(&format!("{id:032x}{hash:016x}"))
    }

    /// Frees the slots of a record that is not open any more.
    pub(super) fn release(&self, record: Record) {
        for slots in record.slots {
            drop(slots);
            self.slots.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A record is open that ends then.
    pub(super) fn ends_at(&self, ends: Tick) {
        let first = self.first_end.load(Ordering::Relaxed);
        if first == 0 || ends < first {
            self.first_end.store(ends, Ordering::Relaxed);
        }
    }
}
