//! Asks, and refuses alone at most.

use tollgate_core::Tick;

use crate::{
    agent::{
        learned::Learned,
        query::{Answer, InFlightQuery, Step},
    },
    consistency::Terms,
};

#[derive(Clone, Debug)]
pub(crate) struct Exact {
    learned: Option<Learned>,
}

impl Exact {
    pub(crate) fn new(learns: bool) -> Self {
        Self {
            learned: learns.then(Learned::default),
        }
    }

    pub(crate) fn arrive(&self, now: Tick, cost: u64, terms: &Terms) -> Step {
        if let Some(learned) = &self.learned
            && learned.refuses(now, cost, terms)
        {
            return Step::Refuse;
        }
        Step::LeaseQuery(InFlightQuery {
            cost,
            ..InFlightQuery::default()
        })
    }

    pub(crate) fn on_reply(&mut self, sent: Tick, answer: &Answer) {
        if let Some(learned) = &mut self.learned {
            learned.learn(sent, answer.assessment.reset_after);
        }
    }
}
