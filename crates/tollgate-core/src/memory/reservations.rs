//! Reservations in memory: the records that are open, for the process that has written them.
//!
//! A text is the id of its record, and a hash of it with a seed of the store, by which texts of others are told from those that are gone.
//! Nothing runs in the background: records whose term has ended are dropped before the next decision that finds too little, and with
//! the next reservation.

use std::{
    collections::{BTreeSet, HashMap},
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    time::Duration,
};

use crate::{
    algorithm::Concurrent,
    hold::Hold,
    key::Fingerprint,
    memory::{
        locked::Locked,
        rule_store::MemoryRuleStore,
        rule_table::{AnyRuleTable, RuleTable},
        table::Table,
    },
    reservation::{
        Reservation, ReservationError, ReservationErrorKind, Reserved, ReservedSettlement,
    },
    store::{rule_store::RuleStore as _, slot_waiters::SlotWaiters},
    sync::{AtomicU64, Mutex, Ordering, lock},
    time::{Tick, micros},
};

/// The most records, so that memory is bounded.
const MOST: usize = 65_536;

/// The open records of a memory store.
pub(super) struct Reservations {
    open: Mutex<Open>,
    /// How many are open. Read without the lock by decisions.
    count: AtomicU64,
    seed: RandomState,
}

#[derive(Default)]
struct Open {
    by_id: HashMap<u128, Record>,
    by_end: BTreeSet<(Tick, u128)>,
}

struct Record {
    ends: Tick,
    bytes: Vec<u8>,
    slots: Vec<ReservedSlots>,
}

/// Slots of a key that belong to a record.
struct ReservedSlots {
    table: Arc<Table<Concurrent>>,
    key: Fingerprint,
    count: u64,
}

impl Default for Reservations {
    fn default() -> Self {
        Self {
            open: Mutex::default(),
            count: AtomicU64::new(0),
            seed: RandomState::new(),
        }
    }
}

impl Reservations {
    fn text(&self, id: u128) -> Reservation {
        let hash = self.seed.hash_one(id);
        Reservation::of_store(&format!("{id:032x}{hash:016x}"))
    }

    fn id(&self, text: &Reservation) -> Result<u128, ReservationError> {
        let letters = text.letters().get(..32);
        let id = letters.and_then(|digits| u128::from_str_radix(digits, 16).ok());
        id.filter(|id| self.text(*id) == *text)
            .ok_or_else(ReservationError::foreign)
    }

    /// Takes a record out, if its term has not ended.
    fn take(&self, id: u128) -> Result<Record, ReservationError> {
        let mut open = lock(&self.open);
        let record = open.by_id.remove(&id).ok_or_else(ReservationError::gone)?;
        open.by_end.remove(&(record.ends, id));
        self.count.store(open.by_id.len() as u64, Ordering::Relaxed);
        Ok(record)
    }
}

impl MemoryRuleStore {
    /// Drops the records whose term has ended.
    pub(super) fn end_reservations(&self) {
        let reservations = &self.shared.reservations;
        if reservations.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let now = self.clock.now();
        loop {
            let first = lock(&reservations.open).by_end.first().copied();
            let Some((_, id)) = first.filter(|(ends, _)| *ends <= now) else {
                return;
            };
            // Another thread may have been faster.
            if let Ok(record) = reservations.take(id) {
                release(record.slots, &self.shared.slot_waiters);
            }
        }
    }

    pub(super) fn open_reservation(
        &self,
        reserved: &Reserved,
        term: Duration,
    ) -> Result<Reservation, ReservationError> {
        self.end_reservations();
        let reservations = &self.shared.reservations;
        let ends = self.clock.now().saturating_add(micros(term));
        let mut open = lock(&reservations.open);
        if open.by_id.len() >= MOST {
            return Err(ReservationError::new(
                ReservationErrorKind::Full,
                format!(
                    "{MOST} reservations are open in this process; settle some, take shorter terms, or reserve on a RedisStore"
                ),
            ));
        }
        let slots = reserved
            .slots
            .iter()
            .filter_map(|slot| self.reserve_slots(slot));
        let record = Record {
            ends,
            bytes: reserved.to_bytes(&self.rules, |key| key.bits().to_le_bytes()),
            slots: slots.collect(),
        };
        open.by_end.insert((ends, reserved.id));
        open.by_id.insert(reserved.id, record);
        let count = open.by_id.len() as u64;
        reservations.count.store(count, Ordering::Relaxed);
        Ok(reservations.text(reserved.id))
    }

    /// Takes as many slots as a request holds, which returns its own at once.
    fn reserve_slots(&self, slot: &Hold) -> Option<ReservedSlots> {
        let Some(AnyRuleTable::Concurrent(rule)) = self.rule(&slot.check) else {
            return None;
        };
        let RuleTable { table, .. } = rule;
        let (key, count) = (slot.check.key(), slot.check.cost());
        let plan = rule.plan_of(&slot.check, &self.quotas())?;
        let mut locked = Locked::new(table, table.shard_of(key));
        locked.take(key, &plan, self.clock.now(), count);
        drop(locked);
        let waiters = &self.shared.slot_waiters;
        waiters.with_term.fetch_add(1, Ordering::Relaxed);
        Some(ReservedSlots {
            table: Arc::clone(table),
            key,
            count,
        })
    }

    pub(super) fn read_reservation(
        &self,
        text: &Reservation,
    ) -> Result<Reserved, ReservationError> {
        self.end_reservations();
        let reservations = &self.shared.reservations;
        let id = reservations.id(text)?;
        let open = lock(&reservations.open);
        let record = open.by_id.get(&id).ok_or_else(ReservationError::gone)?;
        Reserved::from_bytes(id, &record.bytes, &self.rules, |digest| {
            Fingerprint::from_bits(u128::from_le_bytes(digest))
        })
    }

    pub(super) fn take_reservation(
        &self,
        id: u128,
        settlements: &[ReservedSettlement],
    ) -> Result<(), ReservationError> {
        self.end_reservations();
        let record = self.shared.reservations.take(id)?;
        for settlement in settlements {
            self.settle(&settlement.holds, settlement.how);
        }
        release(record.slots, &self.shared.slot_waiters);
        Ok(())
    }

    pub(super) fn extend_reservation(
        &self,
        id: u128,
        term: Duration,
    ) -> Result<(), ReservationError> {
        self.end_reservations();
        let mut guard = lock(&self.shared.reservations.open);
        let open = &mut *guard;
        let record = open.by_id.get_mut(&id);
        let record = record.ok_or_else(ReservationError::gone)?;
        open.by_end.remove(&(record.ends, id));
        record.ends = self.clock.now().saturating_add(micros(term));
        open.by_end.insert((record.ends, id));
        Ok(())
    }
}

fn release(slots: Vec<ReservedSlots>, waiters: &SlotWaiters) {
    for ReservedSlots { table, key, count } in slots {
        Locked::new(&table, table.shard_of(key)).release(key, count);
        waiters.with_term.fetch_sub(1, Ordering::Relaxed);
        waiters.wake(key);
    }
}
