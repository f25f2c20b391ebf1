//! A process's side of leases.

use tollgate_core::Tick;

use crate::lease::{
    demand::Demand,
    held::{Held, Kind},
    lot::{Ask, Closed, Lot},
    terms::{LeaseTerms, PARKING_LIFE},
    thirst::Thirst,
};

/// What one process holds of one key: a lot, and how many units it is asked for.
///
/// Times are by the process's own clock, which never goes back. A process that starts holds nothing.
///
/// # Units that come back
///
/// A unit that was spent of a lot, and whose request was not let through after all, comes back: another rule has denied, the caller
/// has gone, or a ticket was cancelled. Often its lot has been replaced by then.
///
/// - **Of a window** no unit is lost. It was counted in its window when it was lent, and stays counted until that is over,
///   so it may be spent there by whoever has it: it goes [into whatever the process holds](Self::give_back_to) of the same
///   window, and back to the store with the next question, or by a refund.
/// - **Of a bucket** it goes back into [the lot it was spent of](Self::give_back), and is lost where that is gone: the bucket has
///   refilled since as if it had been spent, and in another lot it would be there twice. So of each lot at most the units are lost
///   that were spent on requests which were still undecided, or are refunded later, when it was replaced; and the bucket
///   has them again after the time in which as many come back.
///
/// ```
/// use tollgate_core::{
///     MINUTE, Quota,
///     algorithm::{Algorithm, FixedWindow},
/// };
/// use tollgate_prefilter::{Ask, Holder, LeaseTerms, WindowLender, WindowState};
///
/// let quota = Quota::fixed_window(1_000, MINUTE);
/// let terms = LeaseTerms::new(&quota, 100)?;
/// let window = FixedWindow::new(&quota).expect("a window");
/// let lender = WindowLender::new(window, &terms).expect("terms of a window");
/// let (mut state, mut holder) = (WindowState::default(), Holder::default());
/// let now = 1_700_000_000_000_000;
///
/// let ask = Ask { parking: 25, ..Ask::default() };
/// let (_, lot) = lender.acquire(&mut state, now, 1, &ask);
/// assert_eq!(holder.answered((now, now), now, lot, &terms), None);
/// assert!(holder.spend(now, 25));
/// let window = holder.window().expect("a lot of a window");
///
/// // The lot is used up and goes back; then another rule denies what it was spent on.
/// let ask = holder.ask(now, 1, &terms);
/// lender.acquire(&mut state, now, 1, &ask);
/// assert_eq!(holder.answered((now, now), now, None, &terms), None);
/// assert_eq!(holder.give_back_to(window, (now, now), 25), 0);
/// assert_eq!(holder.left(now), 25);
/// # Ok::<(), tollgate_prefilter::NoLease>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    lot: Option<Held>,
    /// A question is under way that may bring a lot, and what was held went with it.
    asking: bool,
    /// The last answer took so long that much of a segment would be over by the time it comes.
    is_far: bool,
    demand: Demand,
    thirst: Thirst,
    /// What a sweep has last seen of the lot, and since when.
    seen: Seen,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    units: u64,
    since: Tick,
}

/// A lot pays where so many units are asked for in its life.
const PAYS: u64 = 20;

/// A lot of which nothing was taken for so long goes back: 2 s. Sooner, keys that are asked for once a second would hand back
/// and ask in turn.
const IDLE: Tick = 2_000_000;

/// A lot also goes back where it holds so many times what will likely be asked for before it runs out, and more than
/// [`PAYS`].
const TOO_MUCH: u64 = 4;

impl Holder {
    /// Takes units from the lot, if they are there and due. Otherwise the store has to be [asked](Self::ask), unless it is known
    /// what it would say.
    #[inline]
    pub fn spend(&mut self, now: Tick, cost: u64) -> bool {
        self.demand.count(cost);
        match &mut self.lot {
            Some(lot) if now < lot.until && lot.due(now) >= cost && cost > 0 => {
                // No more than there are.
                lot.units -= cost as u32;
                true
            }
            _ => false,
        }
    }

    /// The units of the lot that may be spent now.
    #[inline]
    #[must_use]
    pub fn left(&self, now: Tick) -> u64 {
        self.lot.map_or(0, |lot| lot.alive(now).min(lot.due(now)))
    }

    /// The units that are left of the lot, due or not.
    #[must_use]
    pub fn held(&self, now: Tick) -> u64 {
        self.lot.map_or(0, |lot| lot.alive(now))
    }

    /// In how many µs so many units of the lot are due, if they will be.
    #[must_use]
    pub fn due_after(&self, now: Tick, cost: u64) -> Option<Tick> {
        let due_at = self.lot?.due_at(cost)?;
        let is_in_time = due_at < self.lot?.until;
        is_in_time.then(|| due_at.saturating_sub(now))
    }

    /// What to say to the store with a request of `cost` units that the lot does not hold: the lot goes back, and another
    /// is asked for if it would pay. A segment stays. [`answered`](Self::answered) or [`lost`](Self::lost) has to follow,
    /// unless it says nothing.
    pub fn ask(&mut self, now: Tick, cost: u64, terms: &LeaseTerms) -> Ask {
        // What costs nothing needs no lot, and leaves the one that is there.
        if self.asking || cost == 0 {
            return Ask::default();
        }
        self.thirst.asks_after(self.demand.age(now));
        self.demand.average(now);
        let parking = self.demand.within(terms.parking_life());
        let parking = if parking >= PAYS { parking } else { 0 };
        let has_segment = self.has_segment(now);
        // Of a window that does not even weigh for the next any more nothing need be said.
        let is_over = |lot: &Held| match (lot.kind, terms.window()) {
            (Kind::Window(_), Some(window)) => now >= lot.until.saturating_add(2 * window),
            _ => false,
        };
        self.lot.take_if(|lot| is_over(lot));
        if !has_segment && let Some(lot) = self.lot.take_if(|lot| lot.is_segment()) {
            self.thirst.drank(lot.size.into(), lot.units.into());
        }
        let segment = terms.segments().filter(|_| !has_segment && !self.is_far);
        let segment = segment.map_or(0, |segments| {
            let demand = self.demand.within(segments.line() / 2);
            self.thirst.wants(now, demand, segments)
        });
        let ask = Ask {
            closed: self.hand_back(now),
            parking,
            segment,
        };
        self.asking = !ask.is_nothing();
        ask
    }

    fn has_segment(&self, now: Tick) -> bool {
        self.lot
            .is_some_and(|lot| lot.is_segment() && lot.alive(now) > 0)
    }

    /// What to say to the store, with a request that costs nothing, about a lot that is not needed: that it goes back. To be
    /// called about once a second while there is a lot. Left to run out instead, its units are lost, and the burst is cut
    /// by its whole size for as long as it is out.
    ///
    /// [`answered`](Self::answered) or [`lost`](Self::lost) has to follow.
    pub fn sweep(&mut self, now: Tick) -> Option<Ask> {
        let is_tracked =
            |lot: &Held| matches!(lot.kind, Kind::Parked(_) | Kind::Window(_)) && now < lot.until;
        let lot = self.lot.filter(is_tracked).filter(|_| !self.asking)?;
        // A call is made only for a lot that has spared one: no key is asked for more often than without lots. One of a long
        // window would be missed until that is over, and goes back all the same.
        let runs_out_soon = lot.until - now <= PARKING_LIFE;
        let units = u64::from(lot.units);
        if lot.units == 0 || (lot.units == lot.size && runs_out_soon) {
            return None;
        }
        if self.seen.units != units {
            self.seen = Seen { units, since: now };
        }
        self.demand.average(now);
        let idle = now >= self.seen.since.saturating_add(IDLE);
        let rest = self.demand.within(lot.until - now);
        if !idle && units <= rest.saturating_mul(TOO_MUCH).saturating_add(PAYS) {
            return None;
        }
        let closed = self.hand_back(now)?;
        self.asking = true;
        Some(Ask {
            closed: Some(closed),
            ..Ask::default()
        })
    }

    /// Forgets the lot, for what was used of the key is forgotten too: units that were spent by now do not
    /// [come back](Self::give_back_to) any more. What is left of the lot is lost, if it was not [taken out](Self::hand_back).
    pub fn forget(&mut self, now: Tick) {
        match &mut self.lot {
            Some(lot) if matches!(lot.kind, Kind::Window(_)) => {
                (lot.units, lot.size) = (0, 0);
                lot.since = now.saturating_add(1);
            }
            lot => *lot = None,
        }
    }

    /// Takes the lot out, to be handed back. `None` where there is none that the store tracks; a segment stays.
    ///
    /// One of a window also when it has run out: the store knows whether the window is over.
    pub fn hand_back(&mut self, now: Tick) -> Option<Closed> {
        let lot = self.lot.as_mut().filter(|lot| !lot.is_segment())?;
        let closed = |generation| Closed {
            size: lot.size.into(),
            left: lot.units.into(),
            generation,
        };
        let closed = match lot.kind {
            Kind::Window(window) => Some(closed(window)),
            // Nothing comes back that has run out here: it may not be tracked any more.
            Kind::Parked(generation) => (now < lot.until).then(|| closed(generation)),
            _ => None,
        };
        let was_empty = lot.is_empty();
        (lot.units, lot.size) = (0, 0);
        closed.filter(|_| !was_empty)
    }

    /// The store has answered a question that was sent at `sent` and that [said](Self::ask) something; it was heard at `heard`.
    /// `at` is the time by the store's clock at which it answered.
    ///
    /// Gives what is left of an earlier window, which a lot has taken the place of: where windows slide it still weighs, and has
    /// to go back.
    #[must_use = "what is left of an earlier window is lost if it does not go back"]
    pub fn answered(
        &mut self,
        (sent, heard): (Tick, Tick),
        at: Tick,
        lot: Option<Lot>,
        terms: &LeaseTerms,
    ) -> Option<Closed> {
        self.asking = false;
        let took = heard.saturating_sub(sent);
        self.is_far = terms.segments().is_some_and(|it| took > it.line() / 4);
        self.thirst.answered(heard, lot.as_ref());
        let lot = lot?;
        let units = lot.units();
        let (life, since, kind) = match (lot, terms.segments(), terms.window()) {
            (Lot::Segment { after, .. }, Some(segments), _) => {
                let span = segments.span(units);
                // From the answer on: counted from the question, its units would be spent before they have come back.
                let since = heard.saturating_add(after + after / 1_000);
                (segments.life(), since, Kind::Segment(span + span / 1_000))
            }
            // Not on these terms.
            (Lot::Segment { .. }, None, _) => return None,
            (Lot::Parking { generation, .. }, _, None) => {
                (terms.parking_life(), heard, Kind::Parked(generation))
            }
            // To the end of the window in which the store has answered.
            (Lot::Parking { generation, .. }, _, Some(window)) => {
                let life = window - at % window.max(1);
                (life, 0, Kind::Window(generation))
            }
        };
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let mut held = Held {
            units,
            size: units,
            since,
            // From when it was asked for: from the answer it would outlive what the store knows of it. And a thousandth
            // less, for clocks that do not run alike.
            until: sent.saturating_add(life - life / 1_000),
            kind,
        };
        let mut left = None;
        if let (Some(before), Kind::Window(_)) = (self.lot, kind)
            && before.kind != kind
        {
            left = self.hand_back(heard);
        } else if let (Some(before), Kind::Window(_)) = (self.lot, kind) {
            // What came back meanwhile is counted in the same window.
            held.units = held.units.saturating_add(before.units);
            held.size = held.size.saturating_add(before.size);
            (held.since, held.until) = (before.since, held.until.max(before.until));
        }
        self.seen = Seen {
            units: held.units.into(),
            since: sent,
        };
        self.lot = Some(held);
        left
    }

    /// No answer came to a question that [said](Self::ask) something: nothing was lent, and what was handed back is lost.
    pub fn lost(&mut self) {
        self.asking = false;
    }

    /// A question that [said](Self::ask) something certainly did not reach the store: what was handed back with it is here
    /// again.
    pub fn unasked(&mut self, closed: Option<Closed>) {
        self.asking = false;
        if let (Some(closed), Some(lot)) = (closed, &mut self.lot)
            && let Kind::Parked(generation) | Kind::Window(generation) = lot.kind
            && generation == closed.generation
        {
            let plus =
                |some: u32, more: u64| some.saturating_add(u32::try_from(more).unwrap_or(u32::MAX));
            lot.units = plus(lot.units, closed.left);
            lot.size = plus(lot.size, closed.size);
        }
    }

    /// Units of a bucket that were spent at `spent`, of a request that was not let through after all. They are
    /// [lost](Self#units-that-come-back) where the lot is gone.
    pub fn give_back(&mut self, now: Tick, spent: Tick, units: u64) {
        if let Some(lot) = &mut self.lot
            && !matches!(lot.kind, Kind::Window(_))
            && now < lot.until
            && spent > lot.since
        {
            let units = u64::from(lot.units).saturating_add(units);
            lot.units = u32::try_from(units).unwrap_or(u32::MAX).min(lot.size);
        }
    }

    /// Units that are counted in a [window](Self::window), and were spent at `spent` on a request that was not let through after
    /// all. Gives those that have no place here: nothing is held of that window. They are to be refunded by the store, which knows
    /// whether it is over.
    #[must_use = "these units are lost if they are not refunded"]
    pub fn give_back_to(&mut self, window: u64, (now, spent): (Tick, Tick), units: u64) -> u64 {
        match &mut self.lot {
            Some(lot) if lot.kind == Kind::Window(window) && now < lot.until => {
                // What was spent before a reset is not counted any more.
                if spent < lot.since {
                    return 0;
                }
                let some = units.min((u32::MAX - lot.units).into());
                // No more than there is room for.
                lot.units += some as u32;
                units - some
            }
            _ => units,
        }
    }

    /// The number of the window in which the units are counted that are held, or were last. `None`: they are of a bucket.
    #[inline]
    #[must_use]
    pub fn window(&self) -> Option<u64> {
        match self.lot?.kind {
            Kind::Window(window) => Some(window),
            _ => None,
        }
    }

    /// When the lot runs out, if there is one.
    #[must_use]
    pub fn until(&self) -> Option<Tick> {
        let lot = self.lot.filter(|lot| !lot.is_empty())?;
        Some(lot.until)
    }

    /// Whether nothing would be lost if this were forgotten.
    #[must_use]
    pub fn is_idle(&self, now: Tick) -> bool {
        !self.asking && self.held(now) == 0
    }
}

#[cfg(test)]
mod tests;
