//! The virtual store.

use std::collections::HashMap;

use tollgate_core::{Tick, algorithm::Algorithm};
use tollgate_prefilter::{BucketLender, BucketState};

use crate::{
    agent::{Answer, Question},
    consistency::Terms,
};

/// One bucket for each key. It decides in no time, and one question after the other.
#[derive(Debug)]
pub(crate) struct Server {
    lender: Option<BucketLender>,
    states: HashMap<u32, BucketState>,
}

impl Server {
    pub(crate) fn new(terms: &Terms) -> Self {
        Self {
            lender: terms
                .lease
                .and_then(|lease| BucketLender::new(&terms.quota, lease)),
            states: HashMap::new(),
        }
    }

    pub(crate) fn decide(
        &mut self,
        key: u32,
        now: Tick,
        question: &Question,
        terms: &Terms,
    ) -> Answer {
        let state = self.states.entry(key).or_default();
        let (assessment, lot) = match &self.lender {
            Some(lender) => lender.acquire(state, now, question.cost, &question.ask),
            // A debt is kept, and never repaired on a denial: what was reported above the limit has to be paid back.
            None => {
                let held_back = terms.held_back;
                terms.arrival.hold_back(&mut state.arrival, now, held_back);
                let mut report = question.report;
                while report > 0 {
                    let some = report.min(terms.quota.limit());
                    terms.arrival.take(&mut state.arrival, now, some);
                    report -= some;
                }
                let answer = terms
                    .arrival
                    .acquire(&mut state.arrival, now, question.cost);
                (answer, None)
            }
        };
        Answer {
            assessment,
            lot,
            at: now,
        }
    }
}
