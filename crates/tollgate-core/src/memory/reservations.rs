//! Reservations in memory, for the process that has written them.
//!
//! Nothing runs in the background: records whose term has ended are dropped before the next decision that finds too little, and with
//! the next call about a reservation.

use crate::{
    error::{StoreError, StoreErrorKind},
    held_slots::HeldSlots,
    hold::{Hold, Holds, Settlement},
    key::Fingerprint,
    memory::{
        locked::Locked,
        open_records::Record,
        rule_store::MemoryRuleStore,
        rule_table::{AnyRuleTable, with_table},
    },
    reservation::{Reservation, Reserved, foreign, gone},
    step::Step,
    store::rule_store::{ReservationStore, RuleStore as _},
    sync::{Ordering, lock},
    time::micros,
};
use std::time::Duration;

/// The most records, so that memory is bounded.
const MOST: usize = 65_536;

impl MemoryRuleStore {
    /// Drops the records whose term has ended.
    pub(super) fn end_reservations(&self) {
        let reservations = &self.shared.reservations;
        let first_end = reservations.first_end.load(Ordering::Relaxed);
        if first_end == 0 || self.clock.now() < first_end {
            return;
        }
        let (mut open, now) = (lock(&reservations.open), self.clock.now());
        let ended: Vec<Record> = open
            .extract_if(|_, record| record.ends <= now)
            .map(|(_, record)| record)
            .collect();
        let first_end = open.values().map(|record| record.ends).min();
        (reservations.first_end).store(first_end.unwrap_or(0), Ordering::Relaxed);
        // Who waits for its slots is woken without the lock.
        drop(open);
        for record in ended {
            reservations.release(record);
        }
    }

    /// Takes as many slots as a request holds, which returns its own at once.
    fn reserve_slots(&self, slot: &Hold) -> Option<HeldSlots> {
        let (key, count) = (slot.check.key(), slot.check.cost());
        with_table!(self.rule(slot.check.rule())?, rule => {
            let plan = self.plan_of(rule, &slot.check)?;
            let mut locked = Locked::new(&rule.table, rule.table.place(key));
            locked.of(key, &plan, self.clock.now()).take(count)
        }, else None)
    }
}

impl ReservationStore for MemoryRuleStore {
    fn reserve(&self, reserved: Reserved, term: Duration) -> Step<Result<Reservation, StoreError>> {
        self.end_reservations();
        let reservations = &self.shared.reservations;
        let mut open = lock(&reservations.open);
        if open.len() >= MOST {
            return Step::Ready(Err(StoreError::new(
                StoreErrorKind::Overloaded,
                format!(
                    "{MOST} reservations are open in this process; settle some, take shorter terms, or reserve on a RedisStore"
                ),
            )));
        }
        let ends = self.clock.now().saturating_add(micros(term));
        let slots = reserved.slots.iter();
        let record = Record {
            ends,
            bytes: reserved.to_bytes(&self.rules, |key| key.bits().to_le_bytes()),
            slots: slots.filter_map(|slot| self.reserve_slots(slot)).collect(),
        };
        (reservations.slots).fetch_add(record.slots.len() as u64, Ordering::Relaxed);
        open.insert(reserved.id, record);
        reservations.ends_at(ends);
        Step::Ready(Ok(reservations.text(reserved.id)))
    }

    fn reserved(&self, text: &Reservation) -> Result<Reserved, StoreError> {
        self.end_reservations();
        let reservations = &self.shared.reservations;
        let id = text
            .letters()
            .get(..32)
            .and_then(|digits| u128::from_str_radix(digits, 16).ok())
            .filter(|id| reservations.text(*id) == *text)
            .ok_or_else(foreign)?;
        let open = lock(&reservations.open);
        let record = open.get(&id).ok_or_else(gone)?;
        Reserved::from_bytes(id, &record.bytes, &self.rules, |digest| {
            Fingerprint::from_bits(u128::from_le_bytes(digest))
        })
    }

    fn redeem(
        &self,
        reserved: &Reserved,
        settlements: &[(Holds, Settlement)],
    ) -> Step<Result<(), StoreError>> {
        self.end_reservations();
        let record = lock(&self.shared.reservations.open).remove(&reserved.id);
        let Some(record) = record else {
            return Step::Ready(Err(gone()));
        };
        for (holds, how) in settlements {
            self.settle(holds, *how);
        }
        self.shared.reservations.release(record);
        Step::Ready(Ok(()))
    }

    fn extend(&self, reserved: &Reserved, term: Duration) -> Step<Result<(), StoreError>> {
        self.end_reservations();
        let reservations = &self.shared.reservations;
        let mut open = lock(&reservations.open);
        let Some(record) = open.get_mut(&reserved.id) else {
            return Step::Ready(Err(gone()));
        };
        record.ends = self.clock.now().saturating_add(micros(term));
        reservations.ends_at(record.ends);
        Step::Ready(Ok(()))
    }
}
