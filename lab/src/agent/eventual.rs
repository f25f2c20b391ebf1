//! Counts alone and reports, with a bound on what is unreported.

use tollgate_core::Tick;
use tollgate_prefilter::{LocalUsage, Spend};

use crate::{
    agent::{
        learned::Learned,
        query::{Answer, InFlightQuery, Step},
    },
    consistency::Terms,
};

#[derive(Clone, Debug, Default)]
pub(crate) struct Eventual {
    usage: LocalUsage,
    learned: Learned,
}

impl Eventual {
    pub(crate) fn arrive(&mut self, now: Tick, cost: u64, terms: &Terms) -> Step {
        if let Some(report) = &terms.report
            && self.usage.spend(now, cost, report) == Spend::Here
        {
            return Step::Admit;
        }
        if self.learned.refuses(now, cost, terms) {
            return Step::Refuse;
        }
        // Who asks anyway reports as well.
        Step::LeaseQuery(InFlightQuery {
            cost,
            report: self.usage.report(),
            ..InFlightQuery::default()
        })
    }

    pub(crate) fn on_reply(
        &mut self,
        (sent, now): (Tick, Tick),
        query: &InFlightQuery,
        answer: &Answer,
    ) {
        self.learned.learn(sent, answer.assessment.reset_after);
        let left = answer.assessment.remaining;
        if query.report > 0 {
            self.usage.reported(query.report, (sent, now), left);
        } else {
            self.usage.learned(sent, left);
        }
    }

    /// Whether the store has the report is not known: it is not sent again.
    pub(crate) fn lost(&mut self, query: &InFlightQuery) {
        if query.report > 0 {
            self.usage.lost(query.report);
        }
    }

    pub(crate) fn on_not_sent(&mut self, now: Tick, terms: &Terms) -> Option<InFlightQuery> {
        if !self.usage.is_due(now, terms.report.as_ref()?) {
            return None;
        }
        Some(InFlightQuery {
            report: self.usage.report(),
            ..InFlightQuery::default()
        })
    }

    pub(crate) fn due_at(&self, terms: &Terms) -> Option<Tick> {
        self.usage.due_at(terms.report.as_ref()?)
    }
}
