//! Counts alone and reports, with a bound on what is unreported.

use tollgate_core::Tick;
use tollgate_prefilter::{Spent, Tally};

use crate::{
    agent::{
        learned::Learned,
        question::{Answer, Question, Step},
    },
    consistency::Terms,
};

#[derive(Clone, Debug, Default)]
pub(crate) struct Eventual {
    tally: Tally,
    learned: Learned,
}

impl Eventual {
    pub(crate) fn arrive(&mut self, now: Tick, cost: u64, terms: &Terms) -> Step {
        if let Some(report) = &terms.report
            && self.tally.spend(now, cost, report) == Spent::Here
        {
            return Step::Admit;
        }
        if self.learned.refuses(now, cost, terms) {
            return Step::Refuse;
        }
        // Who asks anyway reports as well.
        Step::Ask(Question {
            cost,
            report: self.tally.report(),
            ..Question::default()
        })
    }

    pub(crate) fn answered(
        &mut self,
        (sent, now): (Tick, Tick),
        question: &Question,
        answer: &Answer,
    ) {
        self.learned.learn(sent, answer.assessment.reset_after);
        let left = answer.assessment.remaining;
        if question.report > 0 {
            self.tally.reported(question.report, (sent, now), left);
        } else {
            self.tally.learned(sent, left);
        }
    }

    /// Whether the store has the report is not known: it is not sent again.
    pub(crate) fn lost(&mut self, question: &Question) {
        if question.report > 0 {
            self.tally.given_up(question.report);
        }
    }

    pub(crate) fn unasked(&mut self, now: Tick, terms: &Terms) -> Option<Question> {
        if !self.tally.is_due(now, terms.report.as_ref()?) {
            return None;
        }
        Some(Question {
            report: self.tally.report(),
            ..Question::default()
        })
    }

    pub(crate) fn due_at(&self, terms: &Terms) -> Option<Tick> {
        self.tally.due_at(terms.report.as_ref()?)
    }
}
