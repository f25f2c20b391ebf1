//! The baseline: counts alone and reports, with no bound.

use tollgate_core::{
    Tick,
    algorithm::{Algorithm, Assessment, GcraState},
};

use crate::{
    agent::query::{InFlightQuery, Step},
    consistency::{INTERVAL, Terms},
};

/// A bucket of its own, set by the store's answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plain {
    bucket: GcraState,
    unreported: u64,
    since: Tick,
    reporting: bool,
}

impl Plain {
    pub(crate) fn arrive(&mut self, now: Tick, cost: u64, terms: &Terms) -> Step {
        let arrival = terms.arrival.as_ref();
        if !arrival.is_some_and(|arrival| arrival.acquire(&mut self.bucket, now, cost).fits) {
            return Step::Refuse;
        }
        if self.unreported == 0 {
            self.since = now;
        }
        self.unreported += cost;
        Step::Admit
    }

    pub(crate) fn on_not_sent(&mut self, now: Tick) -> Option<InFlightQuery> {
        if self.due_at().is_none_or(|due| now < due) {
            return None;
        }
        self.reporting = true;
        Some(InFlightQuery {
            report: std::mem::take(&mut self.unreported),
            ..InFlightQuery::default()
        })
    }

    pub(crate) fn on_reply(&mut self, sent: Tick, answer: &Assessment, terms: &Terms) {
        self.reporting = false;
        self.bucket = GcraState::default();
        let used = terms.quota.limit() - answer.remaining;
        if let Some(arrival) = &terms.arrival {
            arrival.hold_back(&mut self.bucket, sent, used);
            arrival.take(&mut self.bucket, sent, self.unreported);
        }
    }

    pub(crate) fn lost(&mut self) {
        self.reporting = false;
    }

    pub(crate) fn due_at(&self) -> Option<Tick> {
        (self.unreported > 0 && !self.reporting).then_some(self.since + INTERVAL)
    }
}
