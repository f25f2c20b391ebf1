//! Units that this process has admitted alone and reports.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::{
    Tick,
    algorithm::{Assessment, Retry},
};
use tollgate_prefilter::{ReportTerms, Spent, Tally};

use crate::prefilter::keyed::{Keyed, Slot};

/// The keys that this process may count alone. Of more it asks for every unit.
const KEYS: usize = 1 << 18;

/// What was counted alone, by key.
#[derive(Debug)]
pub(crate) struct Reports {
    keys: Keyed<Counted>,
    /// Keys of which something is not reported.
    due: Mutex<Vec<Slot>>,
}

#[derive(Debug, Default)]
struct Counted {
    tally: Tally,
    fresh_at: Tick,
    is_due: bool,
}

impl Reports {
    pub(crate) fn new() -> Self {
        Self {
            keys: Keyed::new(KEYS),
            due: Mutex::new(Vec::new()),
        }
    }

    /// Counts units alone, if the store said that they are left.
    #[inline]
    pub(crate) fn spend(
        &self,
        slot: Slot,
        now: Tick,
        cost: u64,
        terms: &ReportTerms,
    ) -> Option<Assessment> {
        let (answer, is_first) = self.keys.with(slot, |counted| {
            if counted.tally.spend(now, cost, terms) == Spent::AskFirst {
                return None;
            }
            let is_first = !std::mem::replace(&mut counted.is_due, true);
            let answer = Assessment {
                fits: true,
                remaining: counted.tally.left(),
                reset_after: counted.fresh_at.saturating_sub(now),
                retry: Retry::Now,
            };
            Some((answer, is_first))
        })??;
        if is_first {
            self.due().push(slot);
        }
        Some(answer)
    }

    /// What is to be reported of a key at once: its request has to ask the store.
    pub(crate) fn report(&self, slot: Slot) -> u64 {
        self.keys
            .with(slot, |counted| counted.tally.report())
            .unwrap_or(0)
    }

    /// What is to be reported by `now`, of at most so many keys.
    pub(crate) fn due_by(
        &self,
        now: Tick,
        terms: impl Fn(Slot) -> Option<ReportTerms>,
        most: usize,
    ) -> Vec<(Slot, u64)> {
        let mut waiting = std::mem::take(&mut *self.due()).into_iter();
        let mut due = Vec::new();
        let mut later = Vec::new();
        while due.len() < most
            && let Some(slot) = waiting.next()
        {
            let Some(terms) = terms(slot) else { continue };
            self.keys.with(slot, |counted| {
                if counted.tally.is_due(now, &terms) {
                    let units = counted.tally.report();
                    if units > 0 {
                        due.push((slot, units));
                    }
                }
                counted.is_due = counted.tally.unreported() > 0;
                if counted.is_due {
                    later.push(slot);
                }
            });
        }
        // Those whose turn it was not are the first the next time.
        let mut keys = self.due();
        keys.splice(0..0, waiting.chain(later));
        due
    }

    /// The store has answered a request that was sent at `sent`: so much is left, and until when something is used.
    pub(crate) fn learned(&self, slot: Slot, (sent, now): (Tick, Tick), left: u64, lasts: Tick) {
        let is_idle = |counted: &Counted| counted.tally.is_idle();
        self.keys.with_new(slot, now, is_idle, |counted| {
            counted.tally.learned(sent, left);
            counted.fresh_at = sent.saturating_add(lasts);
        });
    }

    /// The store knows what was reported at `sent`; its answer came at `now`.
    pub(crate) fn reported(&self, slot: Slot, times: (Tick, Tick), left: u64) {
        self.keys
            .with(slot, |counted| counted.tally.reported(times, left));
    }

    /// What was reported was certainly not carried out.
    pub(crate) fn kept(&self, slot: Slot, now: Tick) {
        let is_first = self.keys.with(slot, |counted| {
            counted.tally.kept(now);
            counted.tally.unreported() > 0 && !std::mem::replace(&mut counted.is_due, true)
        });
        if is_first == Some(true) {
            self.due().push(slot);
        }
    }

    /// Nobody knows whether what was reported was carried out. Gives the units.
    pub(crate) fn given_up(&self, slot: Slot) -> u64 {
        self.keys
            .with(slot, |counted| counted.tally.given_up())
            .unwrap_or(0)
    }

    /// Units that were counted come back. Gives those that were not reported yet.
    pub(crate) fn give_back(&self, slot: Slot, units: u64) -> u64 {
        self.keys
            .with(slot, |counted| counted.tally.give_back(units))
            .unwrap_or(0)
    }

    /// Forgets what was counted of a key: what it has used was forgotten.
    pub(crate) fn forget(&self, slot: Slot) {
        self.keys.with(slot, |counted| counted.tally.forget());
    }

    /// The units of a key that the store does not know of.
    pub(crate) fn owed(&self, slot: Slot) -> u64 {
        let owed = self.keys.with(slot, |counted| counted.tally.unreported());
        owed.unwrap_or(0)
    }

    /// The units that the store does not know of.
    pub(crate) fn unreported(&self) -> u64 {
        self.keys.sum(|counted| counted.tally.unreported())
    }

    fn due(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
