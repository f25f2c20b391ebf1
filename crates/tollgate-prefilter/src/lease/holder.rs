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

/// The same for one in transit, which is not held back from anybody.
const PAYS_IN_TRANSIT: u64 = 4;

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
        let wanted = |time: Tick, pays: u64| {
            let units = self.demand.within(time);
            if units >= pays { units } else { 0 }
        };
        let parking = wanted(terms.parking_life(), PAYS);
        let transit = wanted(terms.transit_life() / 2, PAYS_IN_TRANSIT);
        let has_segment = self.has_segment(now);
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
            transit,
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
        let is_tracked = |lot: &Held| matches!(lot.kind, Kind::Parked(_)) && now < lot.until;
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

    /// Forgets the lot: what is left of it is lost.
    pub fn forget(&mut self) {
        self.lot = None;
    }

    /// Takes the lot out, to be handed back. `None` where there is none that the store tracks; what is left of one in transit is
    /// lost, and a segment stays.
    pub fn hand_back(&mut self, now: Tick) -> Option<Closed> {
        let lot = self.lot.take_if(|lot| !lot.is_segment())?;
        // Nothing comes back that has run out here: it may not be tracked any more.
        let Kind::Parked(generation) = lot.kind else {
            return None;
        };
        (now < lot.until).then_some(Closed {
            size: lot.size.into(),
            left: lot.units.into(),
            generation,
        })
    }

    /// The store has answered a question that was sent at `sent` and that [said](Self::ask) something; it was heard at `heard`.
    /// `at` is the time by the store's clock at which it answered.
    pub fn answered(
        &mut self,
        (sent, heard): (Tick, Tick),
        at: Tick,
        lot: Option<Lot>,
        terms: &LeaseTerms,
    ) {
        self.asking = false;
        let took = heard.saturating_sub(sent);
        self.is_far = terms.segments().is_some_and(|it| took > it.line() / 4);
        self.thirst.answered(heard, lot.as_ref());
        let Some(lot) = lot else {
            return;
        };
        let units = lot.units();
        let (life, since, kind) = match (lot, terms.segments(), terms.window()) {
            (Lot::Segment { after, .. }, Some(segments), _) => {
                let span = segments.span(units);
                // From the answer on: counted from the question, its units would be spent before they have come back.
                let since = heard.saturating_add(after + after / 1_000);
                (segments.life(), since, Kind::Segment(span + span / 1_000))
            }
            // Not on these terms.
            (Lot::Segment { .. }, None, _) => return,
            (Lot::Transit { .. }, ..) => (terms.transit_life(), heard, Kind::Transit),
            (Lot::Parking { generation, .. }, _, None) => {
                (terms.parking_life(), heard, Kind::Parked(generation))
            }
            // To the end of the window in which the store has answered.
            (Lot::Parking { generation, .. }, _, Some(window)) => {
                let life = window - at % window.max(1);
                (life, heard, Kind::Parked(generation))
            }
        };
        self.seen = Seen { units, since: sent };
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        self.lot = Some(Held {
            units,
            size: units,
            since,
            // From when it was asked for: from the answer it would outlive what the store knows of it. And a thousandth
            // less, for clocks that do not run alike.
            until: sent.saturating_add(life - life / 1_000),
            kind,
        });
    }

    /// No answer came to a question that [said](Self::ask) something: nothing was lent, and what was handed back is lost.
    pub fn lost(&mut self) {
        self.asking = false;
    }

    /// Units that were spent at `spent`, of a request that was not let through after all. They are lost where the lot is
    /// gone: in another they would be there twice, for the bucket has filled up since.
    pub fn give_back(&mut self, now: Tick, spent: Tick, units: u64) {
        if let Some(lot) = &mut self.lot
            && now < lot.until
            && spent > lot.since
        {
            let units = u64::from(lot.units).saturating_add(units);
            lot.units = u32::try_from(units).unwrap_or(u32::MAX).min(lot.size);
        }
    }

    /// When the lot runs out, if there is one.
    #[must_use]
    pub fn until(&self) -> Option<Tick> {
        self.lot.map(|lot| lot.until)
    }

    /// Whether nothing would be lost if this were forgotten.
    #[must_use]
    pub fn is_idle(&self, now: Tick) -> bool {
        !self.asking && self.held(now) == 0
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{MINUTE, Quota};

    use super::*;

    const TERMS: LeaseTerms = LeaseTerms::of_bucket(100, 10_000_000, 1_000_000, 100);

    fn parked(units: u64) -> Option<Lot> {
        Some(Lot::Parking {
            units,
            generation: 7,
        })
    }

    #[test]
    fn a_lot_is_spent_until_a_thousandth_before_its_life_is_over() {
        let mut holder = Holder::default();
        holder.answered((1_000, 1_500), 0, parked(10), &TERMS);
        assert_eq!(holder.until(), Some(1_000 + 9_990_000));
        assert!(holder.spend(1_000 + 9_989_999, 3));
        assert!(!holder.spend(1_000 + 9_990_000, 3));
    }

    #[test]
    fn what_is_handed_back_is_gone() {
        let mut holder = Holder::default();
        holder.answered((1_000, 1_500), 0, parked(10), &TERMS);
        assert!(holder.spend(2_000, 4));
        let back = Closed {
            size: 10,
            left: 6,
            generation: 7,
        };
        assert_eq!(holder.hand_back(3_000), Some(back));
        assert_eq!((holder.left(3_000), holder.hand_back(3_000)), (0, None));
    }

    #[test]
    fn what_is_left_of_a_lot_in_transit_or_of_one_that_has_run_out_does_not_go_back() {
        let mut holder = Holder::default();
        holder.answered((1_000, 1_500), 0, Some(Lot::Transit { units: 10 }), &TERMS);
        assert_eq!(holder.hand_back(2_000), None);
        holder.answered((1_000, 1_500), 0, parked(10), &TERMS);
        assert_eq!(holder.hand_back(1_000 + 9_990_000), None);
    }

    #[test]
    fn units_go_back_into_the_lot_they_were_spent_of() {
        let mut holder = Holder::default();
        holder.answered((1_000, 1_500), 0, parked(10), &TERMS);
        assert!(holder.spend(2_000, 4));
        holder.give_back(3_000, 2_000, 4);
        assert_eq!(holder.left(3_000), 10);
    }

    #[test]
    fn units_of_another_lot_are_lost() {
        let mut holder = Holder::default();
        holder.answered((1_000, 1_500), 0, parked(10), &TERMS);
        assert!(holder.spend(2_000, 4));
        holder.hand_back(3_000);
        holder.answered((3_000, 3_500), 0, parked(10), &TERMS);
        assert!(holder.spend(4_000, 5));
        holder.give_back(5_000, 2_000, 4);
        assert_eq!(holder.left(5_000), 5);
    }

    const SECOND: Tick = 1_000_000;
    const START: Tick = 1_000 * SECOND;

    /// A holder that was asked for twenty units a second and then got a lot.
    fn holding(units: u64) -> (Holder, LeaseTerms) {
        let terms = LeaseTerms::new(&Quota::gcra(6_000, MINUTE), 100).expect("it is lent");
        let mut holder = Holder::default();
        for before in (0..20).rev() {
            let now = START - before * SECOND / 20;
            holder.spend(now, 1);
            holder.ask(now, 1, &terms);
            holder.lost();
        }
        let lot = Lot::Parking {
            units,
            generation: 7,
        };
        holder.answered((START, START), START, Some(lot), &terms);
        (holder, terms)
    }

    #[test]
    fn a_lot_that_nobody_takes_from_for_two_seconds_goes_back() {
        let (mut holder, terms) = holding(40);
        assert!(holder.spend(START + SECOND / 2, 1));
        assert_eq!(holder.sweep(START + SECOND), None);
        assert_eq!(holder.sweep(START + 2 * SECOND), None);
        let ask = holder.sweep(START + 3 * SECOND).expect("it is idle");
        let closed = Closed {
            size: 40,
            left: 39,
            generation: 7,
        };
        assert_eq!(
            ask,
            Ask {
                closed: Some(closed),
                ..Ask::default()
            }
        );
        // Not a second time, and a request that comes meanwhile asks for itself alone.
        assert_eq!(holder.sweep(START + 4 * SECOND), None);
        assert!(!holder.spend(START + 4 * SECOND, 1));
        assert!(holder.ask(START + 4 * SECOND, 1, &terms).is_nothing());
    }

    #[test]
    fn a_lot_in_use_stays() {
        let (mut holder, _) = holding(100);
        for second in 1..9 {
            let now = START + second * SECOND;
            assert!(holder.spend(now, 10));
            assert_eq!(holder.sweep(now), None);
        }
    }

    #[test]
    fn a_lot_of_which_little_will_be_needed_goes_back_though_it_is_in_use() {
        let (mut holder, _) = holding(100);
        for second in 1..3 {
            assert!(holder.spend(START + second * SECOND, 1));
            assert_eq!(holder.sweep(START + second * SECOND), None);
        }
        // Twenty a second are forgotten by now: for seven seconds more, a dozen will do.
        assert!(holder.spend(START + 3 * SECOND, 1));
        let ask = holder.sweep(START + 3 * SECOND).expect("it is too much");
        assert_eq!(ask.closed.map(|closed| closed.left), Some(97));
    }

    #[test]
    fn a_lot_that_was_never_taken_from_is_left_to_run_out() {
        let (mut holder, _) = holding(40);
        for second in 1..9 {
            assert_eq!(holder.sweep(START + second * SECOND), None);
        }
    }

    #[test]
    fn a_lot_of_a_long_window_that_was_never_taken_from_goes_back() {
        let day = Quota::fixed_window(10_000, 24 * 60 * MINUTE);
        let terms = LeaseTerms::new(&day, 100).expect("it is lent");
        let (mut holder, _) = holding(40);
        holder.answered((START, START), START, parked(40), &terms);
        assert_eq!(holder.sweep(START + SECOND), None);
        assert!(holder.sweep(START + 3 * SECOND).is_some());
    }

    #[test]
    fn what_has_run_out_is_not_handed_back() {
        let (mut holder, terms) = holding(40);
        // A thousandth of its life early, by this clock.
        let over = START + terms.parking_life() - terms.parking_life() / 1_000;
        assert_eq!(holder.left(over - 1), 40);
        assert_eq!(holder.left(over), 0);
        assert_eq!(holder.sweep(over), None);
        assert_eq!(holder.hand_back(over), None);
    }

    #[test]
    fn a_request_that_costs_nothing_leaves_the_lot_where_it_is() {
        let (mut holder, terms) = holding(40);
        assert!(holder.ask(START + 1, 0, &terms).is_nothing());
        assert_eq!(holder.left(START + 1), 40);
    }

    #[test]
    fn one_question_at_a_time_speaks_of_lots() {
        let (mut holder, terms) = holding(2);
        assert!(!holder.ask(START + 1, 3, &terms).is_nothing());
        assert!(holder.ask(START + 2, 3, &terms).is_nothing());
        holder.lost();
        assert_eq!(holder.left(START + 3), 0);
    }

    /// Terms of a hundred units a second, and a segment of so many units that was asked for at `START`, came a millisecond
    /// later, and begins `after` µs after that.
    fn segment(units: u64, after: Tick) -> (Holder, LeaseTerms) {
        let terms = LeaseTerms::new(&Quota::gcra(6_000, MINUTE), 100).expect("it is lent");
        let mut holder = Holder::default();
        let lot = Lot::Segment { units, after };
        holder.answered((START, START + 1_000), START, Some(lot), &terms);
        (holder, terms)
    }

    #[test]
    fn the_units_of_a_segment_are_due_one_after_the_other_from_the_answer_on() {
        let (mut holder, _) = segment(10, 0);
        let first = START + 1_000 + 10_010;
        assert_eq!(
            (holder.held(START + 1_000), holder.left(first - 1)),
            (10, 0)
        );
        assert!(!holder.spend(first - 1, 1));
        assert!(holder.spend(first, 1));
        assert!(!holder.spend(first, 1));
        assert!(!holder.spend(first + 2 * 10_010, 3));
        assert_eq!(holder.due_after(first + 2 * 10_010, 3), Some(10_010));
        assert!(holder.spend(first + 3 * 10_010, 3));
        assert_eq!(holder.due_after(first, 7), None);
    }

    #[test]
    fn a_segment_begins_when_what_was_taken_before_has_come_back() {
        let (mut holder, _) = segment(10, 500_000);
        let first = START + 1_000 + 500_500 + 10_010;
        assert_eq!(holder.due_after(START + 1_000, 1), Some(510_510));
        assert!(!holder.spend(first - 1, 1));
        assert!(holder.spend(first, 1));
    }

    #[test]
    fn what_is_left_of_a_segment_is_lost_at_its_end_which_is_counted_from_the_question() {
        let (mut holder, _) = segment(10, 500_000);
        let over = START + 3_500_000 - 3_500;
        assert_eq!((holder.left(over - 1), holder.left(over)), (10, 0));
        assert!(!holder.spend(over, 1));
        // Units that would be due after that never are.
        let (holder, _) = segment(400, 1_000_000);
        assert_eq!(holder.due_after(START, 400), None);
    }

    #[test]
    fn a_segment_stays_when_the_store_is_asked_and_no_other_is_wanted_beside_it() {
        let (mut holder, terms) = segment(2, 0);
        let ask = holder.ask(START + 5_000, 1, &terms);
        assert_eq!((ask.closed, ask.segment), (None, 0));
        holder.answered((START + 5_000, START + 6_000), START, None, &terms);
        assert_eq!(holder.held(START + 6_000), 2);
        assert_eq!(holder.sweep(START + 7_000), None);
        assert_eq!(holder.held(START + 7_000), 2);
    }

    #[test]
    fn a_segment_is_asked_for_where_nothing_was_lent_for_half_of_its_time() {
        let (mut holder, terms) = holding(2);
        let mut asks = Vec::new();
        for request in 1..=30 {
            let now = START + request * SECOND / 40;
            if !holder.spend(now, 1) {
                let ask = holder.ask(now, 1, &terms);
                asks.push((request, ask.segment));
                if !ask.is_nothing() {
                    holder.answered((now, now), now, None, &terms);
                }
            }
        }
        let first = asks.iter().find(|(_, segment)| *segment > 0);
        assert_eq!(first, Some(&(23, 8)));
    }

    #[test]
    fn who_is_far_from_the_store_asks_for_no_segment() {
        // A line of 450 ms.
        let terms =
            LeaseTerms::new(&Quota::gcra(100, tollgate_core::SECOND), 100).expect("it is lent");
        for (took, wants) in [(100_000, true), (120_000, false)] {
            let mut holder = Holder::default();
            let mut segment = 0;
            for request in 1..=40 {
                let now = START + request * 25_000;
                holder.spend(now, 1);
                let ask = holder.ask(now, 1, &terms);
                segment = segment.max(ask.segment);
                if !ask.is_nothing() {
                    holder.answered((now, now + took), now, None, &terms);
                }
            }
            assert_eq!(segment > 0, wants, "{took}");
        }
    }

    #[test]
    fn units_go_back_into_the_segment_they_were_spent_of() {
        let (mut holder, _) = segment(10, 0);
        let now = START + 500_000;
        assert!(holder.spend(now, 10));
        holder.give_back(now + 1, now, 4);
        assert_eq!(holder.left(now + 1), 4);
        holder.give_back(now + 1, START + 1_000, 4);
        assert_eq!(holder.left(now + 1), 4);
    }

    #[test]
    fn a_holder_is_small() {
        assert!(size_of::<Holder>() <= 96, "{}", size_of::<Holder>());
    }
}
