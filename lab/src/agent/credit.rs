//! Admits the first units of a key without a query: credit lines. Measured here, and built nowhere.

use tollgate_core::{Tick, algorithm::Assessment};

use crate::{
    agent::{
        deny_cache::DenyCache,
        query::{InFlightQuery, Step},
    },
    consistency::Terms,
};

/// The store holds back from every key what all processes together may admit so, for good. So a line needs no lease and no
/// deadline.
#[derive(Clone, Debug)]
pub(crate) struct Credit {
    /// Units of the line that are used.
    used: u64,
    /// Those of them that the store does not know of.
    unreported: u64,
    reporting: bool,
    /// When the reply to a report came.
    replied: Tick,
    deny_cache: DenyCache,
}

impl Credit {
    /// A process that died may have used its whole credit, which is not known: it begins with none.
    pub(crate) fn new(is_reborn: bool, terms: &Terms) -> Self {
        let used = if is_reborn { terms.credit } else { 0 };
        Self {
            used,
            unreported: used,
            reporting: false,
            replied: 0,
            deny_cache: DenyCache::default(),
        }
    }

    pub(crate) fn arrive(&mut self, now: Tick, cost: u64, terms: &Terms) -> Step {
        if self.used + cost <= terms.credit {
            self.used += cost;
            self.unreported += cost;
            return Step::Admit;
        }
        if self.deny_cache.refuses(now, cost, terms) {
            return Step::Refuse;
        }
        let report = if self.reporting { 0 } else { self.unreported };
        self.reporting |= report > 0;
        Step::Query(InFlightQuery {
            cost,
            report,
            ..InFlightQuery::default()
        })
    }

    pub(crate) fn on_reply(
        &mut self,
        (sent, now): (Tick, Tick),
        query: &InFlightQuery,
        answer: &Assessment,
    ) {
        if query.report > 0 {
            self.reporting = false;
            self.unreported -= query.report;
            self.replied = now;
        }
        self.deny_cache.learn(sent, answer.reset_after);
        // While the bucket owes what was reported, the line stays used; and an answer that has overtaken a report does not
        // know.
        let knows = query.report > 0 || sent >= self.replied;
        if knows && (answer.fits || answer.remaining > 0) {
            self.used = self.unreported;
        }
    }

    /// Whether the store has the report is not known: it is sent again, and may count twice.
    pub(crate) fn lost(&mut self, query: &InFlightQuery) {
        if query.report > 0 {
            self.reporting = false;
        }
    }
}
