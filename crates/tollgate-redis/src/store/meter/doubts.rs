//! Refusals that look false, until they are asked about again.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tollgate_core::Tick;

use crate::store::meter::line::Entry;

/// What looks false is asked about again so much later: 100 ms.
///
/// What a process let through is told at once: it waits for the answer to one earlier call at most, and is then carried out
/// or given up within a deadline, which is 50 ms each. What takes longer than this is not relied upon.
pub(in crate::store) const LATER: Tick = 100_000;

/// What is heard of it later than this says nothing: the account is kept for a second longer than it counts, and may be gone.
pub(in crate::store) const LONGEST: Tick = 500_000;

/// The most that waits. What comes then is not counted as false.
const MOST: usize = 256;

/// A refusal that looks false.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Doubt {
    pub(in crate::store) entry: Entry,
    /// That of the first look: by then it may be long ago.
    pub(in crate::store) tolerance: Tick,
}

/// What looks false, the oldest first.
#[derive(Debug, Default)]
pub(in crate::store) struct Doubts(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Doubt>,
    is_minded: bool,
}

impl Doubts {
    /// Whether somebody has to begin minding what waits.
    pub(in crate::store) fn add(&self, doubt: Doubt) -> bool {
        let mut state = self.lock();
        if state.waiting.len() >= MOST {
            return false;
        }
        state.waiting.push_back(doubt);
        !std::mem::replace(&mut state.is_minded, true)
    }

    /// Takes out what can be asked about again.
    pub(in crate::store) fn due(&self, now: Tick) -> Vec<Doubt> {
        let mut state = self.lock();
        let is_due = |doubt: &&Doubt| doubt.entry.since.saturating_add(LATER) <= now;
        let due = state.waiting.iter().take_while(is_due).count();
        state.waiting.drain(..due).collect()
    }

    /// Whether there is anything to mind; if not, the next doubt says that somebody has to begin.
    pub(in crate::store) fn is_minded(&self) -> bool {
        let mut state = self.lock();
        state.is_minded = !state.waiting.is_empty();
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
    use tollgate_core::{Check, Fingerprint};

    use super::*;
    use crate::store::meter::line::Event;

    fn doubt(since: Tick) -> Doubt {
        let check = Check::new(0, Fingerprint::from_bits(7), 1);
        let entry = Entry {
            at: since,
            since,
            event: Event::Refused(check, 1),
        };
        Doubt {
            entry,
            tolerance: 0,
        }
    }

    #[test]
    fn what_looks_false_is_asked_about_again_later_and_once() {
        let doubts = Doubts::default();
        assert!(doubts.add(doubt(5_000)));
        assert!(!doubts.add(doubt(6_000)));
        assert!(doubts.due(4_999 + LATER).is_empty());
        assert_eq!(doubts.due(5_000 + LATER).len(), 1);
        assert!(doubts.is_minded());
        assert_eq!(doubts.due(6_000 + LATER).len(), 1);
        // Now the next one has to begin again.
        assert!(!doubts.is_minded());
        assert!(doubts.add(doubt(7_000)));
    }

    #[test]
    fn no_more_waits_than_may() {
        let doubts = Doubts::default();
        for since in 0..=MOST as u64 {
            let _ = doubts.add(doubt(since));
        }
        assert_eq!(doubts.due(u64::MAX).len(), MOST);
    }
}
