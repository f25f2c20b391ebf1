//! Spends leases.

use tollgate_core::Tick;
use tollgate_prefilter::LeaseHolder;

use crate::{
    agent::{
        learned::Learned,
        query::{Answer, InFlightQuery, Step},
    },
    consistency::Terms,
};

/// For how long what was learned is believed: units that come back make it wrong.
const TRUST: Tick = 1_000_000;

/// How often leases are swept.
const SWEEP: Tick = 1_000_000;

#[derive(Clone, Debug, Default)]
pub(crate) struct Leased {
    holder: LeaseHolder,
    learned: Learned,
    swept: Tick,
}

impl Leased {
    /// The lease first: its units are taken already, whatever the bucket holds.
    pub(crate) fn arrive(&mut self, now: Tick, cost: u64, terms: &Terms) -> Step {
        if self.holder.spend(now, cost) {
            return Step::Admit;
        }
        if self.learned.age(now) < TRUST && self.learned.refuses(now, cost, terms) {
            return Step::Refuse;
        }
        let query = match &terms.lease {
            Some(lease) => self.holder.query(now, cost, lease),
            None => Default::default(),
        };
        Step::LeaseQuery(InFlightQuery {
            cost,
            query,
            ..InFlightQuery::default()
        })
    }

    /// The window in which the units count that were spent just now.
    pub(crate) fn window(&self) -> Option<u64> {
        self.holder.window()
    }

    /// Another rule has denied what was spent at `spent`.
    pub(crate) fn give_back(
        &mut self,
        (now, spent): (Tick, Tick),
        window: Option<u64>,
        units: u64,
    ) -> Option<InFlightQuery> {
        let Some(window) = window else {
            self.holder.give_back(now, spent, units);
            return None;
        };
        let rest = self.holder.give_back_to(window, (now, spent), units);
        (rest > 0).then(|| InFlightQuery {
            refund: Some((window, rest)),
            ..InFlightQuery::default()
        })
    }

    pub(crate) fn on_reply(
        &mut self,
        (sent, now): (Tick, Tick),
        query: &InFlightQuery,
        answer: &Answer,
        terms: &Terms,
    ) -> Option<InFlightQuery> {
        self.learned.learn_anew(sent, answer.assessment.reset_after);
        let lease = terms.lease.as_ref()?;
        if query.query.is_empty() {
            return None;
        }
        let times = (sent, now);
        // Of the window before.
        let left = self
            .holder
            .on_reply(times, answer.at, answer.grant, lease)?;
        Some(InFlightQuery {
            refund: Some((left.generation, left.left)),
            ..InFlightQuery::default()
        })
    }

    pub(crate) fn lost(&mut self, query: &InFlightQuery) {
        if !query.query.is_empty() {
            self.holder.lost();
        }
    }

    pub(crate) fn on_not_sent(&mut self, now: Tick) -> Option<InFlightQuery> {
        if self.due_at().is_none_or(|due| now < due) {
            return None;
        }
        self.swept = now;
        Some(InFlightQuery {
            query: self.holder.sweep(now)?,
            ..InFlightQuery::default()
        })
    }

    pub(crate) fn due_at(&self) -> Option<Tick> {
        let until = self.holder.until()?;
        (self.swept < until).then_some(self.swept + SWEEP)
    }

    pub(crate) fn held(&self, now: Tick) -> u64 {
        self.holder.left(now)
    }
}
