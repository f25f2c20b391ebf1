//! One of the agents.

use tollgate_core::Tick;

use crate::{
    agent::{
        credit::Credit,
        eventual::Eventual,
        exact::Exact,
        leased::Leased,
        plain::Plain,
        query::{Answer, InFlightQuery, Step},
    },
    consistency::{Consistency, Terms},
};

/// What one process does about one key.
///
/// All times are by the process's own clock, but for those in an answer.
#[derive(Clone, Debug)]
pub(crate) enum Agent {
    Exact(Exact),
    Leased(Leased),
    Credit(Credit),
    Eventual(Eventual),
    Plain(Plain),
}

impl Agent {
    /// Of a process that has died before or not.
    pub(crate) fn new(consistency: Consistency, is_reborn: bool, terms: &Terms) -> Self {
        match consistency {
            Consistency::Exact => Self::Exact(Exact::new(false)),
            Consistency::Leased(_) if terms.lease.is_some() => Self::Leased(Leased::default()),
            Consistency::Credit(_) if terms.credit > 0 => {
                Self::Credit(Credit::new(is_reborn, terms))
            }
            Consistency::Learned | Consistency::Leased(_) | Consistency::Credit(_) => {
                Self::Exact(Exact::new(true))
            }
            Consistency::Eventual => Self::Eventual(Eventual::default()),
            Consistency::Plain => Self::Plain(Plain::default()),
        }
    }

    pub(crate) fn arrive(&mut self, now: Tick, cost: u64, terms: &Terms) -> Step {
        match self {
            Self::Exact(one) => one.arrive(now, cost, terms),
            Self::Leased(one) => one.arrive(now, cost, terms),
            Self::Credit(one) => one.arrive(now, cost, terms),
            Self::Eventual(one) => one.arrive(now, cost, terms),
            Self::Plain(one) => one.arrive(now, cost, terms),
        }
    }

    /// An answer. Gives what has to be said then.
    pub(crate) fn on_reply(
        &mut self,
        (sent, now): (Tick, Tick),
        query: &InFlightQuery,
        answer: &Answer,
        terms: &Terms,
    ) -> Option<InFlightQuery> {
        match self {
            Self::Exact(one) => one.on_reply(sent, answer),
            Self::Leased(one) => return one.on_reply((sent, now), query, answer, terms),
            Self::Credit(one) => one.on_reply((sent, now), query, answer),
            Self::Eventual(one) => one.on_reply((sent, now), query, answer),
            Self::Plain(one) => one.on_reply(sent, answer, terms),
        }
        None
    }

    /// No answer came, and none will be listened to.
    pub(crate) fn lost(&mut self, query: &InFlightQuery) {
        match self {
            Self::Exact(_) => {}
            Self::Leased(one) => one.lost(query),
            Self::Credit(one) => one.lost(query),
            Self::Eventual(one) => one.lost(query),
            Self::Plain(one) => one.lost(),
        }
    }

    /// What it has to say with no request to say it with.
    pub(crate) fn on_not_sent(&mut self, now: Tick, terms: &Terms) -> Option<InFlightQuery> {
        match self {
            Self::Exact(_) | Self::Credit(_) => None,
            Self::Leased(one) => one.on_not_sent(now),
            Self::Eventual(one) => one.on_not_sent(now, terms),
            Self::Plain(one) => one.on_not_sent(now),
        }
    }

    /// When to see whether it has something to say.
    pub(crate) fn due_at(&self, terms: &Terms) -> Option<Tick> {
        match self {
            Self::Exact(_) | Self::Credit(_) => None,
            Self::Leased(one) => one.due_at(),
            Self::Eventual(one) => one.due_at(terms),
            Self::Plain(one) => one.due_at(),
        }
    }

    /// The window in which the units count that were spent just now, if it holds units of one.
    pub(crate) fn window(&self) -> Option<u64> {
        match self {
            Self::Leased(one) => one.window(),
            _ => None,
        }
    }

    /// Another rule has denied what was spent alone. What it does not keep goes to the store.
    pub(crate) fn give_back(
        &mut self,
        times: (Tick, Tick),
        window: Option<u64>,
        units: u64,
    ) -> Option<InFlightQuery> {
        match self {
            Self::Leased(one) => one.give_back(times, window, units),
            // Nobody else is asked to give back.
            _ => None,
        }
    }

    /// Units that it holds in advance.
    pub(crate) fn held(&self, now: Tick) -> u64 {
        match self {
            Self::Leased(one) => one.held(now),
            _ => 0,
        }
    }
}
