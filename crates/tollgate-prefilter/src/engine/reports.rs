//! Local usage and its reports, by key.

use tollgate_core::{
    Tick,
    algorithm::{Assessment, Retry},
    store::Fingerprint,
};

use crate::{
    engine::{
        engine_usage::EngineUsage,
        limit::{Limit, Visit},
    },
    report::{
        local_usage::{LocalUsage, Spend},
        terms::ReportTerms,
    },
    sync::{AtomicU64, Ordering},
    table::key_table::{KeyTable, Miss},
};

/// Units that this process has admitted and reports, by key.
#[derive(Debug)]
pub(crate) struct Reports {
    keys: KeyTable<Counted>,
    /// The last time that was given to a query or a reply.
    last: AtomicU64,
}

#[derive(Debug, Default)]
struct Counted {
    usage: LocalUsage,
    fresh_at: Tick,
    is_due: bool,
    /// When units were last put into a report.
    reported_at: Tick,
}

/// When a query was sent: by the clock, and by a time that no other query or reply has, so that their order is known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SentAt {
    pub(crate) at: Tick,
    pub(crate) order: Tick,
}

/// What the store said of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    /// The units that are left.
    pub(crate) units: u64,
    /// In how many µs nothing is used any more.
    pub(crate) reset_after: Tick,
}

impl Reports {
    /// Reports of at most `keys` keys. The store decides each request of the others.
    pub(crate) fn new(keys: usize) -> Self {
        Self {
            keys: KeyTable::new(keys),
            last: AtomicU64::new(0),
        }
    }

    /// A time for a query that is sent now, or a reply that comes now.
    pub(crate) fn order(&self, now: Tick) -> Tick {
        let next = |last: u64| Some(now.max(last.saturating_add(1)));
        let last = self
            .last
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        // `next` always returns a time, and the update returns the one before.
        let (Ok(last) | Err(last)) = last;
        now.max(last.saturating_add(1))
    }

    /// Counts units locally, if the store said that they are left.
    #[inline]
    pub(crate) fn spend(
        &self,
        limit: &Limit,
        key: Fingerprint,
        now: Tick,
        cost: u64,
        terms: &ReportTerms,
    ) -> Result<Assessment, Miss> {
        let (answer, is_first) = self.keys.look(limit.slot(key), |counted| {
            if counted.usage.spend(now, cost, terms) == Spend::QueryStore {
                return None;
            }
            let is_first = !std::mem::replace(&mut counted.is_due, true);
            counted.uses(now, cost, terms);
            let answer = Assessment::new(
                true,
                counted.usage.left(),
                counted.fresh_at.saturating_sub(now),
                Retry::Now,
            );
            Some((answer, is_first))
        })?;
        if is_first {
            limit.add_unreported(key);
        }
        Ok(answer)
    }

    /// Whether something is kept of a key.
    pub(crate) fn keeps(&self, limit: &Limit, key: Fingerprint) -> bool {
        self.keys.with(limit.slot(key), |_| ()).is_some()
    }

    /// Notes that a key was seen, and counts nothing.
    pub(crate) fn see(&self, limit: &Limit, key: Fingerprint) -> Miss {
        let seen = self.keys.look(limit.slot(key), |_| None::<()>);
        seen.err().unwrap_or(Miss { is_new: false })
    }

    /// Puts the unreported units of a key into a report; 0: there are none.
    pub(crate) fn report(&self, limit: &Limit, key: Fingerprint, now: Tick) -> u64 {
        let report = |counted: &mut Counted| {
            let units = counted.usage.report();
            if units > 0 {
                counted.reported_at = now;
            }
            units
        };
        self.keys.with(limit.slot(key), report).unwrap_or(0)
    }

    /// Keys whose report is due `by` a time, at most `most` of them.
    pub(crate) fn due_by(&self, limit: &Limit, by: Tick, most: usize) -> Vec<Fingerprint> {
        let mut due = Vec::new();
        let Some(terms) = limit.report_terms() else {
            return due;
        };
        limit.visit_unreported(|key| {
            if due.len() >= most {
                return Visit::Stop;
            }
            let visited = self.keys.with(limit.slot(key), |counted| {
                if counted.usage.is_due(by, terms) {
                    due.push(key);
                }
                counted.is_due = counted.usage.unreported() > 0;
                counted.is_due
            });
            match visited {
                Some(true) => Visit::Keep,
                _ => Visit::Drop,
            }
        });
        due
    }

    /// The store has replied to a request. From now on its numbers are kept, unless the key was `new_keys` when the request was
    /// sent and still is.
    pub(crate) fn learn(
        &self,
        limit: &Limit,
        key: Fingerprint,
        (sent, now): (SentAt, Tick),
        left: Left,
        new_keys: bool,
    ) {
        let Some(terms) = limit.report_terms() else {
            return;
        };
        let is_idle = |counted: &Counted| counted.usage.is_idle();
        let learn = |counted: &mut Counted| {
            counted.usage.on_remaining(sent.order, left.units);
            counted.fresh_at = sent.at.saturating_add(left.reset_after);
            // The store does not know of these.
            counted.uses(now, counted.usage.unreported(), terms);
        };
        if new_keys {
            self.keys.with(limit.slot(key), learn);
        } else {
            self.keys.with_new(limit.slot(key), now, is_idle, learn);
        }
    }

    /// The store has replied to a report, at `now`.
    pub(crate) fn on_reported(
        &self,
        limit: &Limit,
        key: Fingerprint,
        units: u64,
        (sent, now): (SentAt, Tick),
        left: Left,
    ) {
        let now = self.order(now);
        self.keys.with(limit.slot(key), |counted| {
            counted.usage.reported(units, (sent.order, now), left.units);
            let fresh_at = sent.at.saturating_add(left.reset_after);
            counted.fresh_at = counted.fresh_at.max(fresh_at);
        });
    }

    /// A report was certainly not carried out. Its units are reported again.
    pub(crate) fn keep(&self, limit: &Limit, key: Fingerprint, units: u64, now: Tick) {
        let is_first = self.keys.with(limit.slot(key), |counted| {
            counted.usage.kept(units, now);
            counted.usage.unreported() > 0 && !std::mem::replace(&mut counted.is_due, true)
        });
        if is_first == Some(true) {
            limit.add_unreported(key);
        }
    }

    /// It is unknown whether a report was carried out. Returns the units that the store may not know of.
    pub(crate) fn lost(&self, limit: &Limit, key: Fingerprint, units: u64) -> u64 {
        let lost = |counted: &mut Counted| counted.usage.lost(units);
        self.keys.with(limit.slot(key), lost).unwrap_or(0)
    }

    /// Counts all units under a limit that are in no report as lost, and returns how many.
    pub(crate) fn give_up(&self, limit: &Limit) -> u64 {
        let mut lost = 0;
        limit.visit_unreported(|key| {
            let units = self.report(limit, key, 0);
            lost += self.lost(limit, key, units);
            Visit::Drop
        });
        lost
    }

    /// Units that were counted at `spent` come back. Returns those that were not reported yet. What was counted before the
    /// last report was in it, and only the store knows whether it still weighs. What was counted at the same time may have
    /// been in it or not: other unreported units take its place.
    pub(crate) fn give_back(
        &self,
        limit: &Limit,
        key: Fingerprint,
        spent: Tick,
        units: u64,
    ) -> u64 {
        let Some(terms) = limit.report_terms() else {
            return 0;
        };
        let give_back = |counted: &mut Counted| {
            if spent < counted.reported_at {
                return 0;
            }
            let back = counted.usage.give_back(units);
            counted.fresh_at = counted.fresh_at.saturating_sub(terms.puts_off(back));
            back
        };
        self.keys.with(limit.slot(key), give_back).unwrap_or(0)
    }

    /// Forgets what was counted of a key: its state was forgotten.
    pub(crate) fn forget(&self, limit: &Limit, key: Fingerprint, now: Tick) {
        let now = self.order(now);
        self.keys
            .with(limit.slot(key), |counted| counted.usage.forget(now));
    }

    /// The units of a key that are in no report.
    pub(crate) fn unsent(&self, limit: &Limit, key: Fingerprint) -> u64 {
        let unsent = self
            .keys
            .with(limit.slot(key), |counted| counted.usage.unsent());
        unsent.unwrap_or(0)
    }

    /// Adds what is held.
    pub(crate) fn add_usage(&self, usage: &mut EngineUsage) {
        usage.reports = self
            .keys
            .usage(|counted| usage.units_unreported += counted.usage.unreported());
    }
}

impl Counted {
    /// Units are used that the store did not know of when it said for how long something is used.
    #[inline]
    fn uses(&mut self, now: Tick, units: u64, terms: &ReportTerms) {
        let later = terms.puts_off(units);
        if later > 0 {
            self.fresh_at = self.fresh_at.max(now).saturating_add(later);
        }
    }
}
