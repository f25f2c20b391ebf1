//! The baseline that the engine is compared with: what one process would do about one key that counts alone and reports, with no bound.

use tollgate_core::{
    Tick,
    algorithm::{Algorithm, Assessment, GcraState},
};

use crate::consistency::{INTERVAL, Terms};

/// A bucket of its own, set by the store's answers.
///
/// All times are by the process's own clock, but for those in an answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Agent {
    bucket: GcraState,
    unreported: u64,
    since: Tick,
    reporting: bool,
}

impl Agent {
    /// Whether a request of this cost passes.
    pub(crate) fn admits(&mut self, now: Tick, cost: u64, terms: &Terms) -> bool {
        let arrival = terms.arrival.as_ref();
        if !arrival.is_some_and(|arrival| arrival.acquire(&mut self.bucket, now, cost).fits) {
            return false;
        }
        if self.unreported == 0 {
            self.since = now;
        }
        self.unreported += cost;
        true
    }

    /// The units of a report that is due.
    pub(crate) fn report(&mut self, now: Tick) -> Option<u64> {
        if self.due_at().is_none_or(|due| now < due) {
            return None;
        }
        self.reporting = true;
        Some(std::mem::take(&mut self.unreported))
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

    /// No answer came, and none will be listened to.
    pub(crate) fn lost(&mut self) {
        self.reporting = false;
    }

    /// When to see whether it has something to say.
    pub(crate) fn due_at(&self) -> Option<Tick> {
        (self.unreported > 0 && !self.reporting).then_some(self.since + INTERVAL)
    }
}
