//! Units that this process has admitted alone and reports.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tollgate_core::{
    Tick,
    algorithm::{Assessment, Retry},
};
use tollgate_prefilter::{LocalUsage, ReportTerms, Spend};

use crate::prefilter::{
    key_table::{KeyTable, Miss},
    table_key::TableKey,
};

/// The keys that this process may count alone. Of more it asks for every unit.
const KEYS: usize = 1 << 18;

/// What was counted alone, by key.
#[derive(Debug)]
pub(crate) struct Reports {
    keys: KeyTable<Counted>,
    /// Keys of which something is not reported.
    due: Mutex<VecDeque<TableKey>>,
    /// Whether there are any.
    is_due: AtomicBool,
    /// The last time that was given to something sent or heard.
    last: AtomicU64,
}

#[derive(Debug, Default)]
struct Counted {
    usage: LocalUsage,
    fresh_at: Tick,
    is_due: bool,
    /// When units were last taken out to be reported.
    reported_at: Tick,
}

/// A report of so many units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub(crate) slot: TableKey,
    pub(crate) units: u64,
}

/// When something was sent: by the clock, and by a time that nothing else has, which says what was sent or heard first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentAt {
    pub(crate) at: Tick,
    pub(super) place: Tick,
}

impl Reports {
    pub(crate) fn new() -> Self {
        Self {
            keys: KeyTable::new(KEYS),
            due: Mutex::new(VecDeque::new()),
            is_due: AtomicBool::new(false),
            last: AtomicU64::new(0),
        }
    }

    /// A time for something that is sent or heard now.
    pub(super) fn place(&self, now: Tick) -> Tick {
        let next = |last: u64| Some(now.max(last.saturating_add(1)));
        let last = self
            .last
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        // It always gives one, and the one before is what is handed out.
        let (Ok(last) | Err(last)) = last;
        now.max(last.saturating_add(1))
    }

    /// Counts units alone, if the store said that they are left.
    #[inline]
    pub(crate) fn spend(
        &self,
        slot: TableKey,
        now: Tick,
        cost: u64,
        terms: &ReportTerms,
    ) -> Result<Assessment, Miss> {
        let (answer, is_first) = self.keys.look(slot, |counted| {
            if counted.usage.spend(now, cost, terms) == Spend::QueryStore {
                return None;
            }
            let is_first = !std::mem::replace(&mut counted.is_due, true);
            counted.uses(now, cost, terms);
            let answer = Assessment {
                fits: true,
                remaining: counted.usage.left(),
                reset_after: counted.fresh_at.saturating_sub(now),
                retry: Retry::Now,
            };
            Some((answer, is_first))
        })?;
        if is_first {
            self.is_due(slot);
        }
        Ok(answer)
    }

    /// Whether something is kept of a key.
    pub(crate) fn keeps(&self, slot: TableKey) -> bool {
        self.keys.with(slot, |_| ()).is_some()
    }

    /// Notes that a key was seen, and counts nothing.
    pub(crate) fn see(&self, slot: TableKey) -> Miss {
        let seen = self.keys.look(slot, |_| None::<()>);
        seen.err().unwrap_or(Miss { is_new: false })
    }

    /// What is to be reported of a key at once: its request has to ask the store, which is told of this first.
    pub(crate) fn report(&self, slot: TableKey, now: Tick) -> Option<Report> {
        let units = self.keys.with(slot, |counted| counted.report(now))?;
        (units > 0).then_some(Report { slot, units })
    }

    /// What is to be reported `by` a time, of at most so many keys.
    pub(crate) fn due_by(
        &self,
        (now, by): (Tick, Tick),
        terms: impl Fn(TableKey) -> Option<ReportTerms>,
        most: usize,
    ) -> Vec<Report> {
        let mut due = Vec::new();
        let mut later = Vec::new();
        // Those whose turn it is not stand behind the others the next time.
        let waiting = self.due().len();
        for _ in 0..waiting {
            if due.len() >= most {
                break;
            }
            let Some(slot) = self.due().pop_front() else {
                break;
            };
            let Some(terms) = terms(slot) else { continue };
            self.keys.with(slot, |counted| {
                if counted.usage.is_due(by, &terms) {
                    let units = counted.report(now);
                    if units > 0 {
                        due.push(Report { slot, units });
                    }
                }
                counted.is_due = counted.usage.unreported() > 0;
                if counted.is_due {
                    later.push(slot);
                }
            });
        }
        let mut keys = self.due();
        keys.extend(later);
        self.is_due.store(!keys.is_empty(), Ordering::Relaxed);
        due
    }

    /// The store has answered a request: so much is left, and until when something is used. From now on this is kept, unless
    /// the key was `unkept` when it was asked, and still is.
    pub(crate) fn learned(
        &self,
        slot: TableKey,
        (sent, now): (SentAt, Tick),
        (left, lasts): (u64, Tick),
        (terms, uncached): (&ReportTerms, bool),
    ) {
        let is_idle = |counted: &Counted| counted.usage.is_idle();
        let learn = |counted: &mut Counted| {
            counted.usage.learned(sent.place, left);
            counted.fresh_at = sent.at.saturating_add(lasts);
            // The store does not know of these.
            counted.uses(now, counted.usage.unreported(), terms);
        };
        if uncached {
            self.keys.with(slot, learn);
        } else {
            self.keys.with_new(slot, now, is_idle, learn);
        }
    }

    /// The store has answered a report: so much is left, and until when something is used. The answer was heard at `now`.
    pub(crate) fn reported(
        &self,
        report: Report,
        (sent, now): (SentAt, Tick),
        (left, lasts): (u64, Tick),
    ) {
        let replies = self.place(now);
        self.keys.with(report.slot, |counted| {
            let times = (sent.place, replies);
            counted.usage.reported(report.units, times, left);
            counted.fresh_at = counted.fresh_at.max(sent.at.saturating_add(lasts));
        });
    }

    /// What was reported was certainly not carried out.
    pub(crate) fn kept(&self, report: Report, now: Tick) {
        let is_first = self.keys.with(report.slot, |counted| {
            counted.usage.kept(report.units, now);
            counted.usage.unreported() > 0 && !std::mem::replace(&mut counted.is_due, true)
        });
        if is_first == Some(true) {
            self.is_due(report.slot);
        }
    }

    /// Nobody knows whether what was reported was carried out. Gives the units.
    pub(crate) fn lost(&self, report: Report) -> u64 {
        let lost = |counted: &mut Counted| counted.usage.lost(report.units);
        self.keys.with(report.slot, lost).unwrap_or(0)
    }

    /// Units that were counted at `spent` come back. Gives those that were not reported yet. What was counted before the last
    /// report was in one: it is the store that knows what it still weighs. What was counted at the same time may have been in
    /// it or not, and counts as much: others that are not reported may go in its place.
    pub(crate) fn give_back(
        &self,
        slot: TableKey,
        spent: Tick,
        units: u64,
        terms: &ReportTerms,
    ) -> u64 {
        let give_back = |counted: &mut Counted| {
            if spent < counted.reported_at {
                return 0;
            }
            let back = counted.usage.give_back(units);
            counted.fresh_at = counted.fresh_at.saturating_sub(terms.puts_off(back));
            back
        };
        self.keys.with(slot, give_back).unwrap_or(0)
    }

    /// Forgets what was counted of a key: what it has used was forgotten.
    pub(crate) fn forget(&self, slot: TableKey, now: Tick) {
        let now = self.place(now);
        self.keys.with(slot, |counted| counted.usage.forget(now));
    }

    /// The units of a key that are in no report.
    pub(crate) fn unsent(&self, slot: TableKey) -> u64 {
        let unsent = self.keys.with(slot, |counted| counted.usage.unsent());
        unsent.unwrap_or(0)
    }

    /// The units that the store does not know of.
    pub(crate) fn unreported(&self) -> u64 {
        self.keys.sum(|counted| counted.usage.unreported())
    }

    /// Whether there may be something to report. Of many keys that are seen once there is not.
    #[inline]
    pub(crate) fn has_due(&self) -> bool {
        self.is_due.load(Ordering::Relaxed)
    }

    fn is_due(&self, slot: TableKey) {
        let mut due = self.due();
        due.push_back(slot);
        self.is_due.store(true, Ordering::Relaxed);
    }

    fn due(&self) -> MutexGuard<'_, VecDeque<TableKey>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted {
    fn report(&mut self, now: Tick) -> u64 {
        let units = self.usage.report();
        if units > 0 {
            self.reported_at = now;
        }
        units
    }

    /// Units are used that the store did not know of when it said until when something is.
    #[inline]
    fn uses(&mut self, now: Tick, units: u64, terms: &ReportTerms) {
        let later = terms.puts_off(units);
        if later > 0 {
            self.fresh_at = self.fresh_at.max(now).saturating_add(later);
        }
    }
}
