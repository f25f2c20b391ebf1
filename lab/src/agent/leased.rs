//! Spends lots.

use tollgate_core::Tick;
use tollgate_prefilter::Holder;

use crate::{
    agent::{
        learned::Learned,
        question::{Answer, Question, Step},
    },
    consistency::Terms,
};

/// For how long what was learned is believed: units that come back make it wrong.
const TRUST: Tick = 1_000_000;

/// How often lots are swept.
const SWEEP: Tick = 1_000_000;

#[derive(Clone, Debug, Default)]
pub(crate) struct Leased {
    holder: Holder,
    learned: Learned,
    swept: Tick,
}

impl Leased {
    /// The lot first: its units are taken already, whatever the bucket holds.
    pub(crate) fn arrive(&mut self, now: Tick, cost: u64, terms: &Terms) -> Step {
        if self.holder.spend(now, cost) {
            return Step::Admit;
        }
        if self.learned.age(now) < TRUST && self.learned.refuses(now, cost, terms) {
            return Step::Refuse;
        }
        let ask = match &terms.lease {
            Some(lease) => self.holder.ask(now, cost, lease),
            None => Default::default(),
        };
        Step::Ask(Question {
            cost,
            ask,
            ..Question::default()
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
    ) -> Option<Question> {
        let Some(window) = window else {
            self.holder.give_back(now, spent, units);
            return None;
        };
        let rest = self.holder.give_back_to(window, (now, spent), units);
        (rest > 0).then(|| Question {
            refund: Some((window, rest)),
            ..Question::default()
        })
    }

    pub(crate) fn answered(
        &mut self,
        (sent, now): (Tick, Tick),
        question: &Question,
        answer: &Answer,
        terms: &Terms,
    ) -> Option<Question> {
        self.learned.learn_anew(sent, answer.assessment.reset_after);
        let lease = terms.lease.as_ref()?;
        if question.ask.is_nothing() {
            return None;
        }
        let times = (sent, now);
        // Of the window before.
        let left = self.holder.answered(times, answer.at, answer.lot, lease)?;
        Some(Question {
            refund: Some((left.generation, left.left)),
            ..Question::default()
        })
    }

    pub(crate) fn lost(&mut self, question: &Question) {
        if !question.ask.is_nothing() {
            self.holder.lost();
        }
    }

    pub(crate) fn unasked(&mut self, now: Tick) -> Option<Question> {
        if self.due_at().is_none_or(|due| now < due) {
            return None;
        }
        self.swept = now;
        Some(Question {
            ask: self.holder.sweep(now)?,
            ..Question::default()
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
