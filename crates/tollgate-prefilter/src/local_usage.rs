//! Local usage: a process admits what the store last said is left, and reports it afterwards. It never holds more than
//! `max_unreported` unreported units, so N processes together exceed the limit by at most `N · max_unreported`.
//!
//! What one process has admitted of one key, and not reported.

use std::time::Duration;

use tollgate_core::{
    AlgorithmKind, Quota, Retry, Tick, algorithm::Assessment, micros, refill_time,
};

/// Counts local usage of what the store last said is left.
///
/// Times are by the process's own clock. No two queries or replies have the same time. A process that starts knows nothing, and
/// queries the store.
///
/// Answers may come in another order than queries were sent, and be about states in yet another. So an answer replaces what
/// is known only if its query was sent after all earlier replies; any other can make it less, never more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LocalUsage {
    /// What the store said is left, less what was admitted since the query.
    room: u64,
    /// Admitted, and in no report.
    unreported: u64,
    /// Admitted, and in reports without an answer so far.
    reporting: u64,
    /// When the query was sent to which the store last replied; 0: never.
    queried_at: Tick,
    /// Replies to earlier queries replace nothing.
    believes_from: Tick,
    /// When there was last something to report that had not been before.
    since: Tick,
    /// Whether the room was learned while reports were under way, without what they hold.
    is_incomplete: bool,
    /// When nothing is used any more.
    pub(crate) fresh_at: Tick,
    /// When units were last put into a report.
    pub(crate) reported_at: Tick,
}

/// What the store said is not believed for longer: 5 s.
const TRUST: Tick = 5_000_000;

impl LocalUsage {
    /// Admits `cost` units alone, if they are left and may be unreported. Otherwise the store has to be queried: its reply is too old or
    /// used up, or too much is unreported.
    #[inline]
    pub(crate) fn spend(
        &mut self,
        now: Tick,
        cost: u64,
        terms: &ReportTerms,
    ) -> Option<Assessment> {
        let unreported = self.unreported + self.reporting;
        if self.queried_at == 0
            || now.abs_diff(self.queried_at) >= TRUST
            || cost > self.room
            || unreported.saturating_add(cost) > terms.max_unreported
            || cost == 0
        {
            return None;
        }
        if self.unreported == 0 {
            self.since = now;
        }
        self.room -= cost;
        self.unreported += cost;
        self.uses(now, cost, terms);
        let fresh_after = self.fresh_at.saturating_sub(now);
        Some(Assessment::new(true, self.room, fresh_after, Retry::Now))
    }

    /// Units are used that the store did not know of when it said for how long something is used.
    #[inline]
    pub(crate) fn uses(&mut self, now: Tick, units: u64, terms: &ReportTerms) {
        let later = terms.puts_off(units);
        if later > 0 {
            self.fresh_at = self.fresh_at.max(now).saturating_add(later);
        }
    }

    /// Units admitted and not known to the store.
    pub(crate) fn unreported(&self) -> u64 {
        self.unreported + self.reporting
    }

    /// Units admitted and in no report.
    pub(crate) fn unsent(&self) -> u64 {
        self.unreported
    }

    /// Whether a report is due.
    pub(crate) fn is_due(&self, now: Tick, terms: &ReportTerms) -> bool {
        self.due_at(terms).is_some_and(|due| now >= due)
    }

    /// When a report is due. `None` while there is nothing to say, or one is under way.
    pub(crate) fn due_at(&self, terms: &ReportTerms) -> Option<Tick> {
        (self.unreported > 0 && self.reporting == 0)
            .then_some(self.since.saturating_add(terms.interval))
    }

    /// The units to report now, by which the store is to be debited whatever is left; 0 if there is nothing to say. A
    /// request that has to query the store takes them along, also while other reports are in flight.
    ///
    /// [`reported`](Self::reported), [`kept`](Self::kept) or [`lost`](Self::lost) has to follow with these units,
    /// unless they are 0.
    pub(crate) fn report(&mut self, now: Tick) -> u64 {
        let units = std::mem::take(&mut self.unreported);
        if self.reporting == 0 {
            self.is_incomplete = false;
        }
        if units > 0 {
            self.reported_at = now;
        }
        self.reporting += units;
        units
    }

    /// The store has replied to a request that was sent at `sent`: `left` units are left.
    ///
    /// The store has not debited local usage from `left`, except perhaps reports in flight.
    pub(crate) fn on_remaining(&mut self, sent: Tick, left: u64) {
        let room = left.saturating_sub(self.unreported());
        if sent > self.queried_at && sent >= self.believes_from {
            self.queried_at = sent;
            self.room = room;
        } else {
            self.room = self.room.min(room);
        }
        self.is_incomplete |= self.reporting > 0;
    }

    /// The store knows the units of a report that was sent at `sent`; the reply came at `now`, and `left` are left.
    ///
    /// Another query in between may have been answered before the report was counted.
    pub(crate) fn reported(&mut self, units: u64, (sent, now): (Tick, Tick), left: u64) {
        self.reporting = self.reporting.saturating_sub(units);
        let room = left.saturating_sub(self.unreported());
        if self.is_incomplete {
            // Whichever of the two the store did first, one of these is right and the other is more.
            self.room = room.min(self.room.saturating_add(units));
        } else if sent >= self.believes_from {
            self.queried_at = self.queried_at.max(sent);
            self.room = room;
        }
        self.is_incomplete = self.reporting > 0;
        self.believes_from = self.believes_from.max(now);
    }

    /// A report was certainly not carried out: its units are reported with the next.
    pub(crate) fn kept(&mut self, units: u64, now: Tick) {
        let units = units.min(self.reporting);
        self.reporting -= units;
        self.unreported += units;
        self.since = now;
    }

    /// Whether a report was carried out is not known. It is not sent again: a unit must not count twice. Gives the units
    /// that the store may not know of.
    ///
    /// The store has to be queried before more is admitted: otherwise as much again would be lost with each report.
    pub(crate) fn lost(&mut self, units: u64) -> u64 {
        let units = units.min(self.reporting);
        self.reporting -= units;
        self.queried_at = 0;
        units
    }

    /// Forgets what was counted and what the store said: the key's state was forgotten at `now`. Reports that are under way
    /// stay so.
    pub(crate) fn forget(&mut self, now: Tick) {
        (self.room, self.unreported, self.queried_at) = (0, 0, 0);
        self.believes_from = self.believes_from.max(now);
    }

    /// Units that were counted here, of a request that was not let through after all.
    pub(crate) fn give_back(&mut self, units: u64) -> u64 {
        let back = units.min(self.unreported);
        self.unreported -= back;
        self.room += back;
        back
    }
}

// The terms of a quota's reports.

/// How often a process reports, and how many units it may admit before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportTerms {
    /// How often a process reports, in µs.
    pub interval: Tick,
    /// The most units that a process has admitted and not reported.
    pub max_unreported: u64,
    /// How many units of a bucket come back, and in how many µs.
    refill: Option<(u64, u64)>,
}

const ALGORITHM: &str =
    "a log never holds more than its limit, so it cannot count units that were admitted above it";
const NOTHING: &str = "with no unreported units, every request queries the store";
const TOO_MANY: &str = "more unreported units than the limit are no limit";

impl ReportTerms {
    /// The terms of a quota.
    ///
    /// # Errors
    ///
    /// Why a process cannot count the quota by itself, or not with this `max_unreported`.
    pub fn new(
        quota: &Quota,
        interval: Duration,
        max_unreported: u64,
    ) -> Result<Self, &'static str> {
        if matches!(
            quota.algorithm(),
            AlgorithmKind::SlidingLog | AlgorithmKind::Concurrent | AlgorithmKind::Unlimited
        ) {
            return Err(ALGORITHM);
        }
        if max_unreported == 0 {
            return Err(NOTHING);
        }
        if max_unreported > quota.limit() {
            return Err(TOO_MANY);
        }
        Ok(Self {
            interval: micros(interval),
            max_unreported,
            refill: (quota.algorithm().is_bucket()).then(|| (quota.rate(), micros(quota.period()))),
        })
    }

    /// How many µs later a state is fresh if `units` more are used, rounded up: the time in which a bucket refills
    /// by them. 0 of a window, whose end stays where it is.
    pub(crate) fn puts_off(&self, units: u64) -> Tick {
        (self.refill).map_or(0, |(rate, period)| refill_time(units, rate, period))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollgate_core::{MAX_PERIOD, Quota, SECOND};

    use super::*;

    /// Of 1 000 a second, reported each 100 ms; at most ten are unreported.
    fn terms() -> ReportTerms {
        let quota = Quota::gcra(1_000, SECOND);
        ReportTerms::new(&quota, Duration::from_millis(100), 10).expect("it reports")
    }

    #[test]
    fn what_the_store_has_said_is_believed_for_five_seconds() {
        let terms = terms();
        let mut usage = LocalUsage::default();
        usage.on_remaining(1_000, 100);
        assert!(usage.spend(5_000_999, 1, &terms).is_some());
        assert!(usage.spend(5_001_000, 1, &terms).is_none());
    }

    #[test]
    fn a_report_is_due_an_interval_after_the_first_unit_that_is_in_none() {
        let terms = terms();
        let mut usage = LocalUsage::default();
        usage.on_remaining(1_000, 1_000);
        assert_eq!(usage.due_at(&terms), None);
        assert!(!usage.is_due(Tick::MAX, &terms));
        for now in [2_000, 3_000] {
            assert!(usage.spend(now, 1, &terms).is_some());
        }
        assert_eq!(usage.due_at(&terms), Some(102_000));
        assert!(!usage.is_due(101_999, &terms) && usage.is_due(102_000, &terms));
        // While one is under way, no other is due.
        let units = usage.report(100_000);
        assert!(usage.spend(200_000, 1, &terms).is_some());
        assert_eq!(usage.due_at(&terms), None);
        usage.reported(units, (110_000, 210_000), 998);
        assert_eq!(usage.due_at(&terms), Some(300_000));
    }

    #[test]
    fn a_report_that_was_not_carried_out_is_due_again_an_interval_later() {
        let terms = terms();
        let mut usage = LocalUsage::default();
        usage.on_remaining(1_000, 1_000);
        assert!(usage.spend(2_000, 3, &terms).is_some());
        let units = usage.report(100_000);
        usage.kept(units, 150_000);
        assert_eq!((usage.unsent(), usage.unreported()), (3, 3));
        assert_eq!(usage.due_at(&terms), Some(250_000));
        assert_eq!(usage.report(100_000), 3);
        // No more than is under way is kept or lost.
        usage.kept(99, 300_000);
        assert_eq!(usage.unreported(), 3);
        usage.report(100_000);
        assert_eq!((usage.lost(99), usage.unreported()), (3, 0));
    }

    fn puts_off(quota: &Quota, units: u64) -> Tick {
        let terms = ReportTerms::new(quota, SECOND, 1).expect("it reports");
        terms.puts_off(units)
    }

    #[test]
    fn units_of_a_bucket_put_off_when_it_is_full_and_those_of_a_window_do_not() {
        assert_eq!(puts_off(&Quota::gcra(3, SECOND), 2), 666_667);
        assert_eq!(
            puts_off(&Quota::token_bucket(9).refill(4, SECOND), 1),
            250_000
        );
        assert_eq!(puts_off(&Quota::fixed_window(3, SECOND), 2), 0);
        assert_eq!(puts_off(&Quota::sliding_window(3, SECOND), 2), 0);
        let most = puts_off(&Quota::gcra(1, MAX_PERIOD), u64::MAX);
        assert_eq!(most, Tick::MAX);
    }

    #[test]
    fn what_cannot_be_reported_says_why() {
        let of = |quota: Quota, most| ReportTerms::new(&quota, SECOND, most);
        for quota in [Quota::sliding_log(10, SECOND), Quota::concurrent(10)] {
            assert_eq!(of(quota, 5), Err(ALGORITHM));
        }
        assert_eq!(of(Quota::gcra(10, SECOND), 0), Err(NOTHING));
        assert_eq!(of(Quota::gcra(10, SECOND), 11), Err(TOO_MANY));
        for most in [1, 10] {
            let terms = of(Quota::fixed_window(10, SECOND), most).expect("it reports");
            assert_eq!((terms.interval, terms.max_unreported), (1_000_000, most));
        }
    }
}
