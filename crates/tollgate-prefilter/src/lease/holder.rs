//! A process's side of leases.

use tollgate_core::Tick;

use crate::lease::{
    demand::Demand,
    lot::{Ask, Closed, Lot},
    terms::{LeaseTerms, PARKING_LIFE},
};

/// What one process holds of one key: a lot, and how many units it is asked for.
///
/// Times are by the process's own clock, which never goes back. A process that starts holds nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    lot: Option<Held>,
    /// A question is under way that may bring a lot, and what was held went with it.
    asking: bool,
    demand: Demand,
    /// What a sweep has last seen of the lot, and since when.
    seen: Seen,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    units: u64,
    since: Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    units: u64,
    size: u64,
    /// When it was asked for. What was spent before was of another.
    since: Tick,
    until: Tick,
    /// By what the store tracks it; `None` if it does not.
    generation: Option<u64>,
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
    /// Takes units from the lot, if they are there. Otherwise the store has to be [asked](Self::ask).
    #[inline]
    pub fn spend(&mut self, now: Tick, cost: u64) -> bool {
        match &mut self.lot {
            Some(lot) if now < lot.until && lot.units >= cost && cost > 0 => {
                lot.units -= cost;
                self.demand.count(cost);
                true
            }
            _ => false,
        }
    }

    /// The units that are left of the lot.
    #[inline]
    #[must_use]
    pub fn left(&self, now: Tick) -> u64 {
        match &self.lot {
            Some(lot) if now < lot.until => lot.units,
            _ => 0,
        }
    }

    /// What to say to the store with a request of `cost` units that the lot does not hold: the lot goes back, and another
    /// is asked for if it would pay. [`answered`](Self::answered) or [`lost`](Self::lost) has to follow, unless it says
    /// nothing.
    pub fn ask(&mut self, now: Tick, cost: u64, terms: &LeaseTerms) -> Ask {
        self.demand.count(cost);
        // What costs nothing needs no lot, and leaves the one that is there.
        if self.asking || cost == 0 {
            return Ask::default();
        }
        self.demand.average(now);
        let parking = self.demand.within(terms.parking_life());
        let transit = self.demand.within(terms.transit_life() / 2);
        let ask = Ask {
            closed: self.hand_back(now),
            parking: if parking >= PAYS { parking } else { 0 },
            transit: if transit >= PAYS_IN_TRANSIT {
                transit
            } else {
                0
            },
        };
        self.asking = !ask.is_nothing();
        ask
    }

    /// What to say to the store, with a request that costs nothing, about a lot that is not needed: that it goes back. To be
    /// called about once a second while there is a lot. Left to run out instead, its units are lost, and the burst is cut
    /// by its whole size for as long as it is out.
    ///
    /// [`answered`](Self::answered) or [`lost`](Self::lost) has to follow.
    pub fn sweep(&mut self, now: Tick) -> Option<Ask> {
        let lot = self.lot.filter(|lot| now < lot.until && !self.asking)?;
        // A call is made only for a lot that has spared one: no key is asked for more often than without lots. One of a long
        // window would be missed until that is over, and goes back all the same.
        let runs_out_soon = lot.until - now <= PARKING_LIFE;
        if lot.units == 0 || (lot.units == lot.size && runs_out_soon) {
            return None;
        }
        if self.seen.units != lot.units {
            self.seen = Seen {
                units: lot.units,
                since: now,
            };
        }
        self.demand.average(now);
        let idle = now >= self.seen.since.saturating_add(IDLE);
        let rest = self.demand.within(lot.until - now);
        if !idle && lot.units <= rest.saturating_mul(TOO_MUCH).saturating_add(PAYS) {
            return None;
        }
        let closed = self.hand_back(now)?;
        self.asking = true;
        Some(Ask {
            closed: Some(closed),
            ..Ask::default()
        })
    }

    /// Takes the lot out, to be handed back. `None` where there is none that the store tracks; what is left of another is
    /// lost.
    pub fn hand_back(&mut self, now: Tick) -> Option<Closed> {
        let lot = self.lot.take()?;
        // Nothing comes back that has run out here: it may not be tracked any more.
        let generation = lot.generation.filter(|_| now < lot.until)?;
        Some(Closed {
            size: lot.size,
            left: lot.units,
            generation,
        })
    }

    /// The store has answered a question that was sent at `sent` and that [said](Self::ask) something. `at` is the time by
    /// the store's clock at which it answered.
    pub fn answered(&mut self, sent: Tick, at: Tick, lot: Option<Lot>, terms: &LeaseTerms) {
        self.asking = false;
        let Some(lot) = lot else {
            return;
        };
        let (life, generation) = match (lot, terms.window()) {
            (Lot::Transit { .. }, _) => (terms.transit_life(), None),
            (Lot::Parking { generation, .. }, None) => (terms.parking_life(), Some(generation)),
            // To the end of the window in which the store has answered.
            (Lot::Parking { generation, .. }, Some(window)) => {
                (window - at % window.max(1), Some(generation))
            }
        };
        self.seen = Seen {
            units: lot.units(),
            since: sent,
        };
        self.lot = Some(Held {
            units: lot.units(),
            size: lot.units(),
            since: sent,
            // From when it was asked for: from the answer it would outlive what the store knows of it. And a thousandth
            // less, for clocks that do not run alike.
            until: sent.saturating_add(life - life / 1_000),
            generation,
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
            lot.units = lot.units.saturating_add(units).min(lot.size);
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
        !self.asking && self.left(now) == 0
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
        holder.answered(1_000, 0, parked(10), &TERMS);
        assert_eq!(holder.until(), Some(1_000 + 9_990_000));
        assert!(holder.spend(1_000 + 9_989_999, 3));
        assert!(!holder.spend(1_000 + 9_990_000, 3));
    }

    #[test]
    fn what_is_handed_back_is_gone() {
        let mut holder = Holder::default();
        holder.answered(1_000, 0, parked(10), &TERMS);
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
        holder.answered(1_000, 0, Some(Lot::Transit { units: 10 }), &TERMS);
        assert_eq!(holder.hand_back(2_000), None);
        holder.answered(1_000, 0, parked(10), &TERMS);
        assert_eq!(holder.hand_back(1_000 + 9_990_000), None);
    }

    #[test]
    fn units_go_back_into_the_lot_they_were_spent_of() {
        let mut holder = Holder::default();
        holder.answered(1_000, 0, parked(10), &TERMS);
        assert!(holder.spend(2_000, 4));
        holder.give_back(3_000, 2_000, 4);
        assert_eq!(holder.left(3_000), 10);
    }

    #[test]
    fn units_of_another_lot_are_lost() {
        let mut holder = Holder::default();
        holder.answered(1_000, 0, parked(10), &TERMS);
        assert!(holder.spend(2_000, 4));
        holder.hand_back(3_000);
        holder.answered(3_000, 0, parked(10), &TERMS);
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
            holder.ask(START - before * SECOND / 20, 1, &terms);
            holder.lost();
        }
        let lot = Lot::Parking {
            units,
            generation: 7,
        };
        holder.answered(START, START, Some(lot), &terms);
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
        holder.answered(START, START, parked(40), &terms);
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
}
