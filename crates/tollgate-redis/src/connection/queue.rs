//! Calls that wait for the connection to be free.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Waker},
};

use tokio::time::Instant;

use crate::connection::{
    call::Waiting,
    error::{CallError, CallErrorKind},
};

/// The waiting calls of one connection, in the order in which they came: the first is also the first to expire.
pub(super) struct Queue {
    state: Mutex<State>,
    limit: usize,
}

struct State {
    calls: VecDeque<Waiting>,
    /// The driver, while it sleeps.
    driver: Option<Waker>,
    /// Why nothing is taken any more.
    closed: Option<CallError>,
}

impl Queue {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            state: Mutex::new(State {
                calls: VecDeque::new(),
                driver: None,
                closed: None,
            }),
            limit,
        }
    }

    /// Adds a call, or says at once why not.
    pub(super) fn push(&self, call: Waiting) -> Result<(), CallError> {
        let driver = {
            let mut state = self.lock();
            if let Some(error) = &state.closed {
                return Err(error.clone());
            }
            if state.calls.len() >= self.limit {
                return Err(CallError::new(
                    CallErrorKind::Overloaded,
                    format!("too many pending Redis calls (limit {})", self.limit),
                ));
            }
            state.calls.push_back(call);
            state.driver.take()
        };
        if let Some(driver) = driver {
            driver.wake();
        }
        Ok(())
    }

    /// Moves up to `room` calls that somebody still waits for to `taken`, and those to `expired` that are `over`.
    pub(super) fn take(
        &self,
        room: usize,
        taken: &mut VecDeque<Waiting>,
        expired: &mut Vec<Waiting>,
        mut is_over: impl FnMut(&Waiting) -> bool,
    ) {
        let mut state = self.lock();
        while taken.len() < room {
            let Some(call) = state.calls.pop_front() else {
                return;
            };
            if call.is_dropped() {
                continue;
            }
            if is_over(&call) {
                expired.push(call);
            } else {
                taken.push_back(call);
            }
        }
    }

    /// Takes out the calls whose deadline has passed.
    pub(super) fn take_expired(&self, now: Instant, expired: &mut VecDeque<Waiting>) {
        let mut state = self.lock();
        let is_due = |call: &&Waiting| call.deadline() <= now;
        let due = state.calls.iter().take_while(is_due).count();
        expired.extend(state.calls.drain(..due));
    }

    /// The deadline of the first call. If there is none, the next one wakes the driver.
    pub(super) fn poll_first(&self, cx: &Context<'_>) -> Option<Instant> {
        let mut state = self.lock();
        let first = state.calls.front().map(Waiting::deadline);
        if first.is_none() {
            state.driver = Some(cx.waker().clone());
        }
        first
    }

    /// Takes nothing any more, and fails what waits: none of it was sent.
    pub(super) fn close(&self, error: &CallError) {
        let calls = {
            let mut state = self.lock();
            state.driver = None;
            let calls = std::mem::take(&mut state.calls);
            state.closed.get_or_insert_with(|| error.clone());
            calls
        };
        for call in calls {
            call.answer(Err(error.clone()));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.lock().calls.len()
    }

    /// Each change under the lock is one step, so that a poisoned lock guards whole data.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
