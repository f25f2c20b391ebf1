//! What looks wrong, until it is asked about again; and units that the account has missed, until somebody has told so.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tollgate_core::{Check, Tick};

use crate::store::meter::line::{Entry, same_state};

/// What looks wrong is asked about again so much later: 200 ms.
///
/// What a process let through or gave back is told at once: it waits for the answer to one earlier call at most, and is then
/// carried out or given up within a deadline, which is 50 ms each. As long again, and it has been told as well what was given
/// up, or came late.
pub(in crate::store) const LATER: Tick = 200_000;

/// What is heard of it later than this says nothing: the account is kept for a second longer than it counts, and may be gone.
pub(in crate::store) const LONGEST: Tick = 450_000;

/// The most that waits. What comes then is not counted as wrong.
const MOST: usize = 512;

/// The most states of which is known that something was missed.
const MOST_MISSED: usize = 128;

/// So many units that were missed may be anything: nothing is said any more.
pub(in crate::store) const MANY: u64 = 65_536;

/// What looks wrong.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Recheck {
    pub(in crate::store) entry: Entry,
    pub(in crate::store) why: Why,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::store) enum Why {
    /// So many units were above the limit.
    Over(u64),
    /// It would have fitted, and this was the tolerance of the first look: by the second it is long ago.
    False(Tick),
}

/// What looks wrong and what was missed, the oldest first.
#[derive(Debug, Default)]
pub(in crate::store) struct Rechecks(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    rechecks: VecDeque<Recheck>,
    missed: VecDeque<Check>,
    is_minded: bool,
}

impl Rechecks {
    /// Whether somebody has to begin minding what waits.
    pub(in crate::store) fn add(&self, recheck: Recheck) -> bool {
        let mut state = self.lock();
        if state.rechecks.len() >= MOST {
            return false;
        }
        state.rechecks.push_back(recheck);
        !std::mem::replace(&mut state.is_minded, true)
    }

    /// The account has missed as many units as a check costs. Whether somebody has to begin minding.
    pub(in crate::store) fn miss(&self, check: Check) -> bool {
        let mut state = self.lock();
        if let Some(same) = state.missed.iter_mut().find(|it| same_state(it, &check)) {
            let units = same.cost().saturating_add(check.cost());
            *same = same.with_cost(units.min(MANY));
        } else if state.missed.len() < MOST_MISSED {
            state.missed.push_back(check);
        }
        !std::mem::replace(&mut state.is_minded, true)
    }

    /// Takes out what can be asked about again.
    pub(in crate::store) fn due(&self, now: Tick) -> Vec<Recheck> {
        let mut state = self.lock();
        let is_due = |recheck: &&Recheck| recheck.entry.since.saturating_add(LATER) <= now;
        let due = state.rechecks.iter().take_while(is_due).count();
        state.rechecks.drain(..due).collect()
    }

    /// Takes out what was missed and not told.
    pub(in crate::store) fn take_missed(&self) -> VecDeque<Check> {
        std::mem::take(&mut self.lock().missed)
    }

    /// Whether there is anything to mind; if not, the next to come says that somebody has to begin.
    pub(in crate::store) fn is_minded(&self) -> bool {
        let mut state = self.lock();
        state.is_minded = !state.rechecks.is_empty() || !state.missed.is_empty();
        state.is_minded
    }

    /// Whoever minded has gone.
    pub(in crate::store) fn left_alone(&self) {
        self.lock().is_minded = false;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::Fingerprint;

    use super::*;
    use crate::store::meter::line::Event;

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
    fn a_suspected_violation_is_rechecked_once() {
        let rechecks = Rechecks::default();
        assert!(rechecks.add(recheck(5_000)));
        assert!(!rechecks.add(recheck(6_000)));
        assert!(rechecks.due(4_999 + LATER).is_empty());
        assert_eq!(rechecks.due(5_000 + LATER).len(), 1);
        assert!(rechecks.is_minded());
        assert_eq!(rechecks.due(6_000 + LATER).len(), 1);
        // Now the next one has to begin again.
        assert!(!rechecks.is_minded());
        assert!(rechecks.add(recheck(7_000)));
    }

    #[test]
    fn what_was_missed_of_one_state_is_one_sum() {
        let rechecks = Rechecks::default();
        assert!(rechecks.miss(check(7, 2)));
        assert!(!rechecks.miss(check(8, 1)));
        assert!(!rechecks.miss(check(7, 3)));
        let costs: Vec<_> = rechecks.take_missed().iter().map(Check::cost).collect();
        assert_eq!(costs, [5, 1]);
        assert!(!rechecks.is_minded());
    }

    #[test]
    fn no_more_waits_than_may() {
        let rechecks = Rechecks::default();
        for number in 0..=MOST as u64 {
            let _ = rechecks.add(recheck(number));
            let _ = rechecks.miss(check(number.into(), 1));
        }
        let waiting = (rechecks.due(u64::MAX).len(), rechecks.take_missed().len());
        assert_eq!(waiting, (MOST, MOST_MISSED));
    }
}
