//! What one process has admitted of one key, and not reported.

use tollgate_core::Tick;

use crate::report::terms::ReportTerms;

/// Counts alone what the store last said is left.
///
/// Times are by the process's own clock. A process that starts knows nothing, and asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// What the store said is left, less what was admitted since it was asked.
    room: u64,
    /// Admitted, and in no report.
    unreported: u64,
    /// Admitted, and in a report without an answer so far.
    reporting: u64,
    /// When the store was asked for what it last said; 0: never.
    asked: Tick,
    /// What was asked before is not believed.
    believes_from: Tick,
    /// When there was last something to report that had not been before.
    since: Tick,
}

/// Where a process stands with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spent {
    /// It was counted here.
    Here,
    /// The store has to be asked: what it said is too old, used up, or too much is unreported.
    AskFirst,
}

/// What the store said is not believed for longer: 5 s.
const TRUST: Tick = 5_000_000;

impl Tally {
    /// Admits `cost` units alone, if they are left and may be unreported.
    #[inline]
    pub fn spend(&mut self, now: Tick, cost: u64, terms: &ReportTerms) -> Spent {
        let unreported = self.unreported + self.reporting;
        if self.asked == 0
            || now >= self.asked.saturating_add(TRUST)
            || cost > self.room
            || unreported.saturating_add(cost) > terms.max_unreported()
            || cost == 0
        {
            return Spent::AskFirst;
        }
        if self.unreported == 0 {
            self.since = now;
        }
        self.room -= cost;
        self.unreported += cost;
        Spent::Here
    }

    /// The units left, as far as this process knows.
    #[inline]
    #[must_use]
    pub fn left(&self) -> u64 {
        self.room
    }

    /// Units admitted and not known to the store.
    #[must_use]
    pub fn unreported(&self) -> u64 {
        self.unreported + self.reporting
    }

    /// Whether a report is due.
    #[must_use]
    pub fn is_due(&self, now: Tick, terms: &ReportTerms) -> bool {
        self.due_at(terms).is_some_and(|due| now >= due)
    }

    /// When a report is due. `None` while there is nothing to say, or one is under way.
    #[must_use]
    pub fn due_at(&self, terms: &ReportTerms) -> Option<Tick> {
        (self.unreported > 0 && self.reporting == 0)
            .then_some(self.since.saturating_add(terms.interval()))
    }

    /// The units to report now, by which the store is to be debited whatever is left. One report is under way at a time;
    /// 0 if there is nothing to say. [`reported`](Self::reported), [`kept`](Self::kept) or [`given_up`](Self::given_up)
    /// has to follow, unless it is 0.
    pub fn report(&mut self) -> u64 {
        if self.reporting > 0 {
            return 0;
        }
        self.reporting = std::mem::take(&mut self.unreported);
        self.reporting
    }

    /// The store has answered a report, or a request, that was sent at `sent`: so many units are left.
    ///
    /// A request has debited nothing that was counted here; what is not reported yet is not in what is left.
    pub fn learned(&mut self, sent: Tick, left: u64) {
        if sent < self.asked || sent < self.believes_from {
            return;
        }
        self.asked = sent;
        self.room = left.saturating_sub(self.unreported + self.reporting);
    }

    /// The store knows the units of the report that is under way: it was sent at `sent`, and the answer came at `now`.
    ///
    /// What was asked in between may have been answered before the report was counted, and is not believed.
    pub fn reported(&mut self, (sent, now): (Tick, Tick), left: u64) {
        self.reporting = 0;
        self.learned(sent, left);
        self.believes_from = self.believes_from.max(now);
    }

    /// The report that is under way was certainly not carried out: its units are reported with the next.
    pub fn kept(&mut self, now: Tick) {
        self.unreported += std::mem::take(&mut self.reporting);
        self.since = now;
    }

    /// Whether the report that is under way was carried out is not known. It is not sent again: a unit must not count
    /// twice. Gives the units that the store may not know of.
    ///
    /// The store has to be asked before more is admitted: else as much again would be lost with each report.
    pub fn given_up(&mut self) -> u64 {
        self.asked = 0;
        std::mem::take(&mut self.reporting)
    }

    /// Forgets what was counted and what the store said: the key's state was forgotten. A report that is under way stays so.
    pub fn forget(&mut self) {
        (self.room, self.unreported, self.asked) = (0, 0, 0);
    }

    /// Units that were counted here, of a request that was not let through after all.
    pub fn give_back(&mut self, units: u64) -> u64 {
        let back = units.min(self.unreported);
        self.unreported -= back;
        self.room += back;
        back
    }

    /// Whether nothing would be lost if this were forgotten.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.unreported() == 0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollgate_core::{Quota, SECOND};

    use super::*;

    #[test]
    fn while_reports_are_lost_no_more_is_admitted_than_may_be_unreported() {
        let quota = Quota::gcra(1_000, SECOND);
        let terms = ReportTerms::new(&quota, Duration::from_millis(100), 10).expect("it reports");
        let mut tally = Tally::default();
        tally.learned(1_000, 1_000);
        let mut admitted = 0;
        for now in 1_000..2_000 {
            while tally.spend(now, 1, &terms) == Spent::Here {
                admitted += 1;
            }
            tally.report();
            tally.given_up();
        }
        assert_eq!(admitted, 10);
        tally.learned(2_000, 1_000);
        assert_eq!(tally.spend(2_000, 1, &terms), Spent::Here);
    }
}
