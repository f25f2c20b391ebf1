//! Suspected violations until they are rechecked, and units that the reference has missed until they are sent.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tollgate_core::{Check, Tick};

use crate::store::meter::event_queue::{Entry, same_state};

/// When a suspected violation is rechecked: after 200 ms.
///
/// An event waits for the reply to at most one earlier call, and is then carried out or dropped within a deadline: 50 ms
/// each. After as long again, the units that were dropped or came late have been sent as well.
pub(super) const LATER: Tick = 200_000;

/// A later reply says nothing: the reference is kept for a second longer than it counts, and may be gone.
pub(super) const LONGEST: Tick = 450_000;

/// The most suspected violations. Further ones are not counted as wrong.
const MOST: usize = 512;

/// The most states with missed units.
const MOST_MISSED: usize = 128;

/// With this many missed units, nothing can be said about a state.
pub(super) const MANY: u64 = 65_536;

/// A suspected violation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recheck {
    pub(super) entry: Entry,
    pub(super) why: Why,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Why {
    /// These units were above the limit.
    Over(u64),
    /// It would have fitted, with this tolerance at the first look: by the second it is long ago.
    False(Tick),
}

/// Suspected violations and missed units, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Rechecks(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    rechecks: VecDeque<Recheck>,
    missed: VecDeque<Check>,
    has_task: bool,
}

impl Rechecks {
    /// Adds a suspected violation. Whether the recheck task has to be started.
    pub(super) fn add(&self, recheck: Recheck) -> bool {
        let mut state = self.lock();
        if state.rechecks.len() >= MOST {
            return false;
        }
        state.rechecks.push_back(recheck);
        !std::mem::replace(&mut state.has_task, true)
    }

    /// The reference has missed as many units as a check costs. Whether the recheck task has to be started.
    pub(super) fn miss(&self, check: Check) -> bool {
        let mut state = self.lock();
        if let Some(same) = state.missed.iter_mut().find(|it| same_state(it, &check)) {
            let units = same.cost().saturating_add(check.cost());
            *same = same.with_cost(units.min(MANY));
        } else if state.missed.len() < MOST_MISSED {
            state.missed.push_back(check);
        }
        !std::mem::replace(&mut state.has_task, true)
    }

    /// Takes out what is due for a recheck.
    pub(super) fn due(&self, now: Tick) -> Vec<Recheck> {
        let mut state = self.lock();
        let is_due = |recheck: &&Recheck| recheck.entry.since.saturating_add(LATER) <= now;
        let due = state.rechecks.iter().take_while(is_due).count();
        state.rechecks.drain(..due).collect()
    }

    /// Takes out missed units that were not sent.
    pub(super) fn take_missed(&self) -> VecDeque<Check> {
        std::mem::take(&mut self.lock().missed)
    }

    /// Whether anything is left; if not, the task has to be started for the next one.
    pub(super) fn is_pending(&self) -> bool {
        let mut state = self.lock();
        state.has_task = !state.rechecks.is_empty() || !state.missed.is_empty();
        state.has_task
    }

    /// The task has ended.
    pub(super) fn task_ended(&self) {
        self.lock().has_task = false;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::store::Fingerprint;

    use super::*;
    use crate::store::meter::event_queue::Event;

    fn check(key: u128, units: u64) -> Check {
        Check::new(0, Fingerprint::from_bits(key), units)
    }

    fn recheck(since: Tick) -> Recheck {
        let entry = Entry {
            at: since,
            since,
            event: Event::Refused(check(7, 1), 1),
        };
        Recheck {
            entry,
            why: Why::False(0),
        }
    }

    #[test]
    fn a_suspected_violation_is_rechecked_later_and_once() {
        let rechecks = Rechecks::default();
        assert!(rechecks.add(recheck(5_000)));
        assert!(!rechecks.add(recheck(6_000)));
        assert!(rechecks.due(4_999 + LATER).is_empty());
        assert_eq!(rechecks.due(5_000 + LATER).len(), 1);
        assert!(rechecks.is_pending());
        assert_eq!(rechecks.due(6_000 + LATER).len(), 1);
        // Now the next one has to begin again.
        assert!(!rechecks.is_pending());
        assert!(rechecks.add(recheck(7_000)));
    }

    #[test]
    fn missed_units_of_one_state_are_added_up() {
        let rechecks = Rechecks::default();
        assert!(rechecks.miss(check(7, 2)));
        assert!(!rechecks.miss(check(8, 1)));
        assert!(!rechecks.miss(check(7, 3)));
        let costs: Vec<_> = rechecks.take_missed().iter().map(Check::cost).collect();
        assert_eq!(costs, [5, 1]);
        assert!(!rechecks.is_pending());
    }

    #[test]
    fn what_waits_is_bounded() {
        let rechecks = Rechecks::default();
        for number in 0..=MOST as u64 {
            // One task is enough, and for what is left out none is started.
            assert_eq!(rechecks.add(recheck(number)), number == 0);
            assert!(!rechecks.miss(check(number.into(), 1)));
        }
        let waiting = (rechecks.due(u64::MAX).len(), rechecks.take_missed().len());
        assert_eq!(waiting, (MOST, MOST_MISSED));
    }
}
