//! A process's side of leases.

use tollgate_core::Tick;

use crate::lease::terms::{
    Grant, LeaseQuery, LeaseTerms, ReturnedLease, ScheduledLeaseSizer, TRACKED_LIFE,
};

/// What one process holds of one key: a lease, and the demand for units.
///
/// Times are by the process's own clock, which never goes back. A process that starts holds nothing.
///
/// # Units that come back
///
/// A unit that was spent of a lease, and whose request was not let through after all, comes back: another rule has denied, the caller
/// has gone, or a ticket was cancelled. Often its lease has been replaced by then.
///
/// - **A window** loses no unit. It was counted in its window when it was granted, and stays counted until that is over,
///   so any process may spend it there: it goes [into the lease](Self::give_back_to) of the same
///   window, and back to the store with the next query, or by a refund.
/// - **A bucket** gets it back in [the lease that it was spent from](Self::give_back), and loses it if that lease is gone: the bucket has
///   refilled since as if it had been spent, and in another lease it would be there twice. So of each lease at most the units are lost
///   that were spent on requests which were still undecided, or are refunded later, when it was replaced; and the bucket
///   has them again after the time in which as many come back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseHolder {
    grant: Option<HeldLease>,
    /// A query is in flight that may bring a lease, and what was held went with it.
    is_querying: bool,
    /// The last reply was slow: much of a scheduled lease would be over by the time it comes.
    is_far: bool,
    demand: Demand,
    sizer: ScheduledLeaseSizer,
    /// What a sweep has last seen of the lease, and since when.
    seen: Seen,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    units: u64,
    since: Tick,
}

/// A lease pays if requests need this number of units in its life.
const PAYS: u64 = 20;

/// A lease goes back when nothing was spent of it for 2 s. Sooner, a key with one request a second would return and
/// request leases in turn.
const IDLE: Tick = 2_000_000;

/// A lease also goes back if it holds this many times what requests will likely need before it runs out, and more than
/// [`PAYS`].
const TOO_MUCH: u64 = 4;

impl LeaseHolder {
    /// Takes units from the lease, if they are there and due. Otherwise the store has to be [queried](Self::query), unless its answer
    /// is known.
    #[inline]
    pub fn spend(&mut self, now: Tick, cost: u64) -> bool {
        self.demand.count(cost);
        match &mut self.grant {
            Some(grant) if now < grant.until && grant.due(now) >= cost && cost > 0 => {
                // No more than there are.
                grant.units -= cost as u32;
                true
            }
            _ => false,
        }
    }

    /// The units of the lease that may be spent now.
    #[inline]
    pub fn left(&self, now: Tick) -> u64 {
        self.grant
            .map_or(0, |grant| grant.alive(now).min(grant.due(now)))
    }

    /// The units that are left of the lease, due or not.
    pub fn held(&self, now: Tick) -> u64 {
        self.grant.map_or(0, |grant| grant.alive(now))
    }

    /// In how many µs `cost` units of the lease are due, if they will be.
    pub fn due_after(&self, now: Tick, cost: u64) -> Option<Tick> {
        let due_at = self.grant?.due_at(cost)?;
        let is_in_time = due_at < self.grant?.until;
        is_in_time.then(|| due_at.saturating_sub(now))
    }

    /// What to say to the store with a request of `cost` units that the lease does not hold: the lease goes back, and another
    /// is requested if it would pay. A scheduled lease stays. [`on_granted`](Self::on_granted) or [`lost`](Self::lost) has to follow,
    /// unless it says nothing.
    pub fn query(&mut self, now: Tick, cost: u64, terms: &LeaseTerms) -> LeaseQuery {
        // What costs nothing needs no lease, and leaves the one that is there.
        if self.is_querying || cost == 0 {
            return LeaseQuery::default();
        }
        let pause = now.saturating_sub(self.demand.since);
        self.sizer.on_query_after(pause);
        self.demand.average(now);
        let demand = self.demand.within(terms.tracked_life);
        let tracked = if demand >= PAYS { demand } else { 0 };
        let has_scheduled = self.has_scheduled(now);
        // Of a window that does not even weigh for the next any more nothing need be said.
        let is_over = |grant: &HeldLease| match (grant.kind, terms.window) {
            (Kind::Window(_), Some(window)) => now >= grant.until.saturating_add(2 * window),
            _ => false,
        };
        self.grant.take_if(|grant| is_over(grant));
        if !has_scheduled && let Some(grant) = self.grant.take_if(|grant| grant.is_scheduled()) {
            self.sizer.on_expired(grant.size.into(), grant.units.into());
        }
        let scheduled = terms
            .schedule
            .filter(|_| !has_scheduled && !self.is_far)
            .map_or(0, |schedule| {
                let demand = self.demand.within(schedule.horizon / 2);
                self.sizer.next_size(now, demand, &schedule)
            });
        let query = LeaseQuery {
            returned: self.take_out(now),
            tracked,
            scheduled,
        };
        self.is_querying = !query.is_empty();
        query
    }

    /// Whether units of a scheduled lease are left, due or not.
    pub(crate) fn has_scheduled(&self, now: Tick) -> bool {
        self.grant
            .is_some_and(|grant| grant.is_scheduled() && grant.alive(now) > 0)
    }

    /// What to say to the store, with a request that costs nothing, about a lease that is not needed: that it goes back. To be
    /// called about once a second while there is a lease. Left to run out instead, its units are lost, and the burst is cut
    /// by its whole size for as long as it is out.
    ///
    /// [`on_granted`](Self::on_granted) or [`lost`](Self::lost) has to follow.
    pub fn sweep(&mut self, now: Tick) -> Option<ReturnedLease> {
        let is_tracked = |grant: &HeldLease| {
            matches!(grant.kind, Kind::Tracked(_) | Kind::Window(_)) && now < grant.until
        };
        let grant = self
            .grant
            .filter(is_tracked)
            .filter(|_| !self.is_querying)?;
        // A call is made only for a lease that has saved one: no key costs more calls than without leases. A lease of a long
        // window would be missed until that is over, and still goes back.
        let runs_out_soon = grant.until - now <= TRACKED_LIFE;
        let units = u64::from(grant.units);
        if grant.units == 0 || (grant.units == grant.size && runs_out_soon) {
            return None;
        }
        if self.seen.units != units {
            self.seen = Seen { units, since: now };
        }
        self.demand.average(now);
        let idle = now >= self.seen.since.saturating_add(IDLE);
        let rest = self.demand.within(grant.until - now);
        if !idle && units <= rest.saturating_mul(TOO_MUCH).saturating_add(PAYS) {
            return None;
        }
        let returned = self.take_out(now)?;
        self.is_querying = true;
        Some(returned)
    }

    /// Forgets the lease after a reset of the key: units that were spent before do not
    /// [come back](Self::give_back_to) any more. What is left of the lease is lost, if it was not [taken out](Self::take_out).
    pub fn forget(&mut self, now: Tick) {
        match &mut self.grant {
            Some(grant) if matches!(grant.kind, Kind::Window(_)) => {
                (grant.units, grant.size) = (0, 0);
                grant.since = now.saturating_add(1);
            }
            grant => *grant = None,
        }
    }

    /// Takes the lease out, to be returned. `None` where there is none that the store tracks; a scheduled lease stays.
    ///
    /// A lease of a window is taken out even if it has expired: the store knows whether the window is over.
    pub fn take_out(&mut self, now: Tick) -> Option<ReturnedLease> {
        let grant = self.grant.as_mut().filter(|grant| !grant.is_scheduled())?;
        let returned = |generation| ReturnedLease {
            size: grant.size.into(),
            left: grant.units.into(),
            generation,
        };
        let returned = match grant.kind {
            Kind::Window(window) => Some(returned(window)),
            // Nothing comes back that has run out here: it may not be tracked any more.
            Kind::Tracked(generation) => (now < grant.until).then(|| returned(generation)),
            _ => None,
        };
        let was_empty = grant.is_empty();
        (grant.units, grant.size) = (0, 0);
        returned.filter(|_| !was_empty)
    }

    /// The store has replied to a query that was sent at `sent` and was not [empty](Self::query). The reply came at `received`.
    /// `at` is the time of the reply by the store's clock.
    ///
    /// Gives what is left of an earlier window, which a lease has taken the place of: where windows slide it still weighs, and has
    /// to go back.
    #[must_use = "what is left of an earlier window is lost if it does not go back"]
    pub fn on_granted(
        &mut self,
        (sent, received): (Tick, Tick),
        at: Tick,
        grant: Option<Grant>,
        terms: &LeaseTerms,
    ) -> Option<ReturnedLease> {
        self.is_querying = false;
        let took = received.saturating_sub(sent);
        self.is_far = terms.schedule.is_some_and(|it| took > it.horizon / 4);
        self.sizer.on_grant(received, grant.as_ref());
        let grant = grant?;
        let units = grant.units();
        let (life, since, kind) = match (grant, terms.schedule, terms.window) {
            (Grant::Scheduled { after, .. }, Some(schedule), _) => {
                let span = schedule.span(units);
                // From the answer on: counted from the query, its units would be spent before they have come back.
                let since = received.saturating_add(after + after / 1_000);
                (schedule.life, since, Kind::Scheduled(span + span / 1_000))
            }
            // Not on these terms.
            (Grant::Scheduled { .. }, None, _) => return None,
            (Grant::Tracked { generation, .. }, _, None) => {
                (terms.tracked_life, received, Kind::Tracked(generation))
            }
            // To the end of the window in which the store has answered.
            (Grant::Tracked { generation, .. }, _, Some(window)) => {
                let end = generation.saturating_add(1).saturating_mul(window);
                (end.saturating_sub(at), 0, Kind::Window(generation))
            }
        };
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let mut held = HeldLease {
            units,
            size: units,
            since,
            // From when the query was sent: from the reply it would outlive what the store knows of it. And a thousandth
            // less, for clocks that do not run alike.
            until: sent.saturating_add(life - life / 1_000),
            kind,
        };
        let mut left = None;
        if let (Some(before), Kind::Window(_)) = (self.grant, kind)
            && before.kind != kind
        {
            left = self.take_out(received);
        } else if let (Some(before), Kind::Window(_)) = (self.grant, kind) {
            // What came back meanwhile is counted in the same window.
            held.units = held.units.saturating_add(before.units);
            held.size = held.size.saturating_add(before.size);
            (held.since, held.until) = (before.since, held.until.max(before.until));
        }
        self.seen = Seen {
            units: held.units.into(),
            since: sent,
        };
        self.grant = Some(held);
        left
    }

    /// No reply came to a query that was not [empty](Self::query): nothing was granted, and what was returned is lost.
    pub fn lost(&mut self) {
        self.is_querying = false;
    }

    /// A query that was not [empty](Self::query) certainly did not reach the store: what was returned with it is here again.
    pub fn on_not_sent(&mut self, returned: Option<ReturnedLease>) {
        self.is_querying = false;
        if let (Some(returned), Some(grant)) = (returned, &mut self.grant)
            && let Kind::Tracked(generation) | Kind::Window(generation) = grant.kind
            && generation == returned.generation
        {
            let plus =
                |some: u32, more: u64| some.saturating_add(u32::try_from(more).unwrap_or(u32::MAX));
            grant.units = plus(grant.units, returned.left);
            grant.size = plus(grant.size, returned.size);
        }
    }

    /// Returns units of a bucket that a request has spent at `spent` and that was then not admitted. They are
    /// [lost](Self#units-that-come-back) if the lease is gone.
    pub fn give_back(&mut self, now: Tick, spent: Tick, units: u64) {
        if let Some(grant) = &mut self.grant
            && !matches!(grant.kind, Kind::Window(_))
            && now < grant.until
            && spent > grant.since
        {
            let units = u64::from(grant.units).saturating_add(units);
            grant.units = u32::try_from(units).unwrap_or(u32::MAX).min(grant.size);
        }
    }

    /// Takes back units that count in a [window](Self::window), and that a request has spent at `spent` and was then not admitted.
    /// Returns those of a window without a lease here. The store has to refund them: it knows whether their window is over.
    #[must_use = "these units are lost if they are not refunded"]
    pub fn give_back_to(&mut self, window: u64, (now, spent): (Tick, Tick), units: u64) -> u64 {
        match &mut self.grant {
            Some(grant) if grant.kind == Kind::Window(window) && now < grant.until => {
                // What was spent before a reset is not counted any more.
                if spent < grant.since {
                    return 0;
                }
                let some = units.min((u32::MAX - grant.units).into());
                // No more than there is room for.
                grant.units += some as u32;
                units - some
            }
            _ => units,
        }
    }

    /// The number of the window in which the units are counted that are held, or were last. `None`: they are of a bucket.
    #[inline]
    pub fn window(&self) -> Option<u64> {
        match self.grant?.kind {
            Kind::Window(window) => Some(window),
            _ => None,
        }
    }

    /// When the lease runs out, if there is one.
    pub fn until(&self) -> Option<Tick> {
        let grant = self.grant.filter(|grant| !grant.is_empty())?;
        Some(grant.until)
    }

    /// Whether nothing would be lost if this were forgotten.
    pub fn is_idle(&self, now: Tick) -> bool {
        !self.is_querying && self.held(now) == 0
    }
}

// How many units a second requests need.

/// The average units a second that requests of one key in one process need, over about half a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    /// In thousandths of a unit a second.
    rate: u64,
    since: Tick,
    units: u64,
}

/// Half a second: short, because a busy key queries the store for every unit until it is over.
const MEMORY: u64 = 500_000;

impl Demand {
    /// Counts units that a request needs.
    pub(crate) fn count(&mut self, units: u64) {
        self.units = self.units.saturating_add(units);
    }

    /// Averages what was counted up to `now`.
    pub(crate) fn average(&mut self, now: Tick) {
        // Of the first units it is not known in what time they came.
        if self.since == 0 {
            (self.since, self.units) = (now, 0);
            return;
        }
        let passed = now.saturating_sub(self.since);
        if passed == 0 {
            return;
        }
        let rate = u128::from(self.units) * 1_000_000_000 / u128::from(passed);
        let (old, passed) = (u128::from(self.rate), u128::from(passed));
        let rate = (old * u128::from(MEMORY) + rate * passed) / (u128::from(MEMORY) + passed);
        self.rate = u64::try_from(rate).unwrap_or(u64::MAX);
        (self.since, self.units) = (now, 0);
    }

    /// The units that requests will likely need within this time, in µs.
    pub(crate) fn within(&self, time: Tick) -> u64 {
        let units = u128::from(self.rate) * u128::from(time) / 1_000_000_000;
        u64::try_from(units).unwrap_or(u64::MAX)
    }
}

// A lease in a process's hands.

/// A lease as a process holds it, or what it has left behind: no units, and what was known of it. Times are by the process's own
/// clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldLease {
    /// What a store grants is counted in 32 bits. More than the size where units of an earlier lease of the window came back.
    pub(super) units: u32,
    /// As how many units the store tracks it.
    pub(super) size: u32,
    /// When it came, or when the units of a scheduled lease begin to come due. What was spent before was of another. In a window: when
    /// the key was last reset from here.
    pub(super) since: Tick,
    pub(super) until: Tick,
    pub(super) kind: Kind,
}

/// What is known of it in addition to its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// By the generation in which the store tracks it.
    Tracked(u64),
    /// A lease of the window with this number, in which all of it is counted.
    Window(u64),
    /// Its units come due one after the other, all of them within this time, in µs.
    Scheduled(Tick),
}

impl HeldLease {
    pub(super) const fn is_scheduled(&self) -> bool {
        matches!(self.kind, Kind::Scheduled(_))
    }

    /// Whether nothing of it is here, and the store tracks nothing.
    pub(super) const fn is_empty(&self) -> bool {
        self.units == 0 && self.size == 0
    }

    /// The units that are left, if it has not run out.
    pub(super) fn alive(&self, now: Tick) -> u64 {
        if now < self.until {
            self.units.into()
        } else {
            0
        }
    }

    /// The units that are left of those that are due.
    #[inline]
    pub(super) fn due(&self, now: Tick) -> u64 {
        let Kind::Scheduled(span) = self.kind else {
            return self.units.into();
        };
        // A scheduled lease lives for seconds, below 2^22 µs, and its units are below 2^31.
        let passed = now.saturating_sub(self.since);
        let size = u64::from(self.size);
        let due = passed
            .saturating_mul(size)
            .checked_div(span)
            .map_or(size, |due| due.min(size));
        due.saturating_sub(u64::from(self.size - self.units))
    }

    /// When `cost` units more are due. `None` if there are not as many.
    pub(super) fn due_at(&self, cost: u64) -> Option<Tick> {
        let Kind::Scheduled(span) = self.kind else {
            return (cost <= self.units.into()).then_some(self.since);
        };
        let size = u64::from(self.size);
        let units = u64::from(self.size - self.units).checked_add(cost)?;
        if units > size {
            return None;
        }
        let time = units.saturating_mul(span).div_ceil(size.max(1));
        Some(self.since.saturating_add(time))
    }
}

#[cfg(test)]
mod tests;
