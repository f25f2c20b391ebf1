//! Events that the reference has to know of, in the order in which they happened.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tollgate_core::{
    Check, Tick,
    store::{Receipt, Settlement},
};

/// The most events in the queue. Further ones are dropped.
const MOST: usize = 1_024;

/// Events within 1 ms are sent with one time.
const AT_ONCE: Tick = 1_000;

/// How many of the last events are searched for one to merge with.
const LOOKED_AT: usize = 8;

/// The most events of one call, so that it carries no more checks than usual.
const TOGETHER: usize = 16;

/// An event, with the time at which it happened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// By the store's clock.
    pub(super) at: Tick,
    /// By this process's clock.
    pub(super) since: Tick,
    pub(super) event: Event,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// This many requests were admitted, for the cost of the check together.
    Admitted(Check, u64),
    /// This many requests were refused, each at the cost of the check.
    Refused(Check, u64),
    Settled(Receipt, Settlement),
    /// The state was forgotten.
    Forgotten(Check),
}

/// Events that wait to be sent, and whether a task sends them.
#[derive(Debug, Default)]
pub(super) struct EventQueue(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Entry>,
    has_sender: bool,
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    Queued,
    /// The task that sends has to be started.
    StartSender,
    /// There was no room.
    Dropped {
        /// The task that sends has ended, and has to be started.
        start_sender: bool,
    },
}

impl Event {
    pub(super) fn check(&self) -> &Check {
        match self {
            Self::Admitted(check, _) | Self::Refused(check, _) | Self::Forgotten(check) => check,
            Self::Settled(receipt, _) => &receipt.check,
        }
    }

    /// The requests that it stands for.
    pub(super) fn requests(&self) -> u64 {
        match self {
            Self::Admitted(_, requests) | Self::Refused(_, requests) => *requests,
            Self::Settled(..) | Self::Forgotten(_) => 1,
        }
    }

    /// Merges another of the same kind into it, if both are one query.
    fn add(&mut self, other: &Self) -> bool {
        match (self, other) {
            (Self::Admitted(mine, requests), Self::Admitted(check, more)) => {
                *mine = mine.with_cost(mine.cost().saturating_add(check.cost()));
                *requests += more;
                true
            }
            (Self::Refused(mine, requests), Self::Refused(check, more)) if mine == check => {
                *requests += more;
                true
            }
            _ => false,
        }
    }
}

impl EventQueue {
    pub(super) fn push(&self, entry: Entry) -> Pushed {
        let mut state = self.lock();
        let is_same = |other: &Event| same_state(other.check(), entry.event.check());
        let mut last = state.waiting.iter_mut().rev().take(LOOKED_AT);
        if let Some(other) = last.find(|other| is_same(&other.event))
            && entry.at.abs_diff(other.at) <= AT_ONCE
            && other.event.add(&entry.event)
        {
            return Pushed::Queued;
        }
        let has_room = state.waiting.len() < MOST;
        if has_room {
            state.waiting.push_back(entry);
        }
        let start_sender = !std::mem::replace(&mut state.has_sender, true);
        match (has_room, start_sender) {
            (false, start_sender) => Pushed::Dropped { start_sender },
            (true, true) => Pushed::StartSender,
            (true, false) => Pushed::Queued,
        }
    }

    /// Takes out all events. `None`: there are none, and the task has to be started for the next one.
    pub(super) fn take(&self) -> Option<VecDeque<Entry>> {
        let mut state = self.lock();
        if state.waiting.is_empty() {
            state.has_sender = false;
            return None;
        }
        Some(std::mem::take(&mut state.waiting))
    }

    /// The task has ended: it has to be started for the next event.
    pub(super) fn sender_ended(&self) {
        self.lock().has_sender = false;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The next events for one call: those of about one time.
pub(super) fn at_once(waiting: &mut VecDeque<Entry>, most: usize) -> Vec<Entry> {
    let Some(first) = waiting.front().map(|entry| entry.at) else {
        return Vec::new();
    };
    let goes = |entry: &&Entry| entry.at.abs_diff(first) <= AT_ONCE;
    let count = waiting.iter().take(most.min(TOGETHER)).take_while(goes);
    let count = count.count();
    waiting.drain(..count).collect()
}

pub(super) fn same_state(one: &Check, other: &Check) -> bool {
    one.rule() == other.rule() && one.plan() == other.plan() && one.key() == other.key()
}

#[cfg(test)]
mod tests {
    use tollgate_core::store::Fingerprint;

    use super::*;

    fn entry(at: Tick, event: Event) -> Entry {
        Entry {
            at,
            since: at,
            event,
        }
    }

    fn check(key: u128, cost: u64) -> Check {
        Check::new(0, Fingerprint::from_bits(key), cost)
    }

    #[test]
    fn admitted_requests_of_a_key_within_a_millisecond_are_one_query() {
        let queue = EventQueue::default();
        let admitted = |at, key| queue.push(entry(at, Event::Admitted(check(key, 2), 1)));
        assert_eq!(admitted(5_000, 1), Pushed::StartSender);
        assert_eq!(admitted(5_500, 2), Pushed::Queued);
        assert_eq!(admitted(6_000, 1), Pushed::Queued);
        assert_eq!(admitted(6_001, 1), Pushed::Queued);
        let mut waiting = queue.take().expect("three wait");
        let costs: Vec<_> = waiting.iter().map(|it| it.event.check().cost()).collect();
        assert_eq!(costs, [4, 2, 2]);
        assert_eq!(at_once(&mut waiting, 32).len(), 2);
        assert_eq!(at_once(&mut waiting, 32).len(), 1);
    }

    #[test]
    fn events_of_one_state_keep_their_order() {
        let queue = EventQueue::default();
        for event in [
            Event::Admitted(check(1, 1), 1),
            Event::Refused(check(1, 1), 1),
            Event::Admitted(check(1, 1), 1),
            Event::Forgotten(check(1, 0)),
        ] {
            let _ = queue.push(entry(5_000, event));
        }
        assert_eq!(queue.take().map(|waiting| waiting.len()), Some(4));
    }

    #[test]
    fn the_queue_is_bounded() {
        let queue = EventQueue::default();
        for key in 0..MOST as u128 {
            let pushed = queue.push(entry(0, Event::Refused(check(key, 1), 1)));
            assert!(matches!(pushed, Pushed::Queued | Pushed::StartSender));
        }
        let last = entry(0, Event::Refused(check(u128::MAX, 1), 1));
        let dropped = |start_sender| Pushed::Dropped { start_sender };
        assert_eq!(queue.push(last), dropped(false));
        // Without a sender the queue stays full: the next event starts one.
        queue.sender_ended();
        assert_eq!(
            [(); 2].map(|()| queue.push(last)),
            [true, false].map(dropped)
        );
        assert!(queue.take().is_some() && queue.take().is_none());
        assert_eq!(queue.push(last), Pushed::StartSender);
    }

    #[test]
    fn events_that_are_one_query_stand_for_all_their_requests() {
        let queue = EventQueue::default();
        for event in [
            Event::Admitted(check(1, 2), 1),
            Event::Admitted(check(1, 3), 2),
            Event::Refused(check(2, 1), 1),
            Event::Refused(check(2, 1), 4),
            // Of another cost.
            Event::Refused(check(2, 7), 1),
            Event::Forgotten(check(3, 0)),
        ] {
            let _ = queue.push(entry(5_000, event));
        }
        let waiting = queue.take().expect("they wait");
        let said = waiting
            .iter()
            .map(|it| (it.event.check().cost(), it.event.requests()));
        let said: Vec<_> = said.collect();
        assert_eq!(said, [(5, 3), (1, 5), (7, 1), (0, 1)]);
    }

    #[test]
    fn one_key_under_two_rules_or_plans_has_two_states() {
        let queue = EventQueue::default();
        let other_rule = Check::new(1, Fingerprint::from_bits(1), 1);
        for check in [check(1, 1), check(1, 1).with_plan(1), other_rule] {
            let _ = queue.push(entry(5_000, Event::Admitted(check, 1)));
        }
        assert_eq!(queue.take().map(|waiting| waiting.len()), Some(3));
    }

    #[test]
    fn a_call_has_as_many_events_as_it_may() {
        let mut waiting: VecDeque<_> = (0..20)
            .map(|key| entry(5_000, Event::Admitted(check(key, 1), 1)))
            .collect();
        let sizes = [3, 32, 32, 32].map(|most| at_once(&mut waiting, most).len());
        assert_eq!(sizes, [3, TOGETHER, 1, 0]);
    }

    #[test]
    fn a_task_that_has_ended_is_started_for_the_next_event() {
        let queue = EventQueue::default();
        let push = |key| queue.push(entry(5_000, Event::Admitted(check(key, 1), 1)));
        assert_eq!((push(1), push(2)), (Pushed::StartSender, Pushed::Queued));
        queue.sender_ended();
        assert_eq!((push(3), push(4)), (Pushed::StartSender, Pushed::Queued));
    }
}
