//! What is due, in the order of time.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use tollgate_core::Tick;

/// Events by their time, and those of one instant in the order in which they were planned.
#[derive(Debug)]
pub(crate) struct Schedule<E> {
    due: BinaryHeap<Reverse<Due<E>>>,
    planned: u64,
}

#[derive(Debug)]
struct Due<E> {
    at: Tick,
    number: u64,
    event: E,
}

impl<E> Schedule<E> {
    pub(crate) fn new() -> Self {
        Self {
            due: BinaryHeap::new(),
            planned: 0,
        }
    }

    pub(crate) fn plan(&mut self, at: Tick, event: E) {
        self.planned += 1;
        self.due.push(Reverse(Due {
            at,
            number: self.planned,
            event,
        }));
    }

    /// The next event, if it is due at `end` or before.
    pub(crate) fn next_until(&mut self, end: Tick) -> Option<(Tick, E)> {
        if self.due.peek()?.0.at > end {
            return None;
        }
        let Reverse(due) = self.due.pop()?;
        Some((due.at, due.event))
    }
}

impl<E> PartialEq for Due<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Due<E> {}

impl<E> PartialOrd for Due<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Due<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
