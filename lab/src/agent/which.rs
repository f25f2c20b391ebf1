//! One of the agents.

use tollgate_core::{Tick, algorithm::Assessment};

use crate::{
    agent::{
        credit::Credit,
        plain::Plain,
        query::{InFlightQuery, Step},
    },
    consistency::{Consistency, Terms},
};

/// What one process does about one key.
///
/// All times are by the process's own clock, but for those in an answer.
#[derive(Clone, Debug)]
pub(crate) enum Agent {
    Credit(Credit),
    Plain(Plain),
}

impl Agent {
    /// Of a process that has died before or not.
    pub(crate) fn new(consistency: Consistency, is_reborn: bool, terms: &Terms) -> Self {
        match consistency {
            Consistency::Credit(_) => Self::Credit(Credit::new(is_reborn, terms)),
            _ => Self::Plain(Plain::default()),
        }
    }

    pub(crate) fn arrive(&mut self, now: Tick, cost: u64, terms: &Terms) -> Step {
        match self {
            Self::Credit(one) => one.arrive(now, cost, terms),
            Self::Plain(one) => one.arrive(now, cost, terms),
        }
    }

    pub(crate) fn on_reply(
        &mut self,
        (sent, now): (Tick, Tick),
        query: &InFlightQuery,
        answer: &Assessment,
        terms: &Terms,
    ) {
        match self {
            Self::Credit(one) => one.on_reply((sent, now), query, answer),
            Self::Plain(one) => one.on_reply(sent, answer, terms),
        }
    }

    /// No answer came, and none will be listened to.
    pub(crate) fn lost(&mut self, query: &InFlightQuery) {
        match self {
            Self::Credit(one) => one.lost(query),
            Self::Plain(one) => one.lost(),
        }
    }

    /// What it has to say with no request to say it with.
    pub(crate) fn on_not_sent(&mut self, now: Tick) -> Option<InFlightQuery> {
        match self {
            Self::Credit(_) => None,
            Self::Plain(one) => one.on_not_sent(now),
        }
    }

    /// When to see whether it has something to say.
    pub(crate) fn due_at(&self) -> Option<Tick> {
        match self {
            Self::Credit(_) => None,
            Self::Plain(one) => one.due_at(),
        }
    }
}
