//! The queues in which acquires wait.

use std::{
    collections::{HashMap, VecDeque},
    error::Error,
    fmt,
    sync::Arc,
    task::{Poll, Waker},
};

use crate::{
    check::Check,
    error::UnknownName,
    key::Fingerprint,
    sync::{Mutex, lock},
};

/// How many may wait at once for the same rules and keys.
const CAPACITY: usize = 1_024;

/// How many may wait at once on one limiter.
const IN_ALL: usize = 16 * CAPACITY;

/// How many may wait at once on one limiter before the rest is for the first of each queue: clients with a few keys must
/// not take the places of all others.
const BEHIND_A_FIRST: usize = IN_ALL / 2;

type LineKey = Vec<(u16, Fingerprint)>;

/// The queues in which acquires wait: one for each set of rules and keys.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    lines: HashMap<LineKey, Arc<Line>>,
    total: usize,
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waiting({} in {} lines)", self.total, self.lines.len())
    }
}

/// The waiters of one queue in the order of arrival. Whoever stands in front may take units.
#[derive(Default)]
struct Line(Mutex<Waiters>);

#[derive(Default)]
struct Waiters {
    /// By number, which only grows.
    queue: VecDeque<(u64, Option<Waker>)>,
    next: u64,
}

/// A place in a queue. Dropping it lets the next one move up.
pub(crate) struct Place<'a> {
    lines: &'a Lines,
    key: LineKey,
    line: Arc<Line>,
    number: u64,
}

impl Lines {
    pub(crate) fn enter(&self, checks: &[Check]) -> Result<Place<'_>, WaitError> {
        let key = line_key(checks);
        let mut waiting = lock(&self.0);
        let there = waiting.lines.get(&key);
        let ahead = there.map_or(0, |line| lock(&line.0).queue.len());
        if ahead >= CAPACITY {
            return Err(WaitError(Kind::QueueFull));
        }
        if waiting.total >= if ahead > 0 { BEHIND_A_FIRST } else { IN_ALL } {
            return Err(WaitError(Kind::LimiterFull));
        }
        waiting.total += 1;
        let line = Arc::clone(waiting.lines.entry(key.clone()).or_default());
        let number = {
            let mut waiters = lock(&line.0);
            let number = waiters.next;
            waiters.next += 1;
            waiters.queue.push_back((number, None));
            number
        };
        drop(waiting);
        Ok(Place {
            lines: self,
            key,
            line,
            number,
        })
    }

    /// Whether nobody waits for the same rules and keys.
    pub(crate) fn has_no_line(&self, checks: &[Check]) -> bool {
        !lock(&self.0).lines.contains_key(&line_key(checks))
    }
}

impl Place<'_> {
    /// Ready in front of the queue. Otherwise `waker` is woken there.
    pub(crate) fn poll_front(&self, waker: &Waker) -> Poll<()> {
        let mut waiters = lock(&self.line.0);
        let place = waiters.place_of(self.number);
        // It stands in the queue until it is dropped.
        let Some((_, woken)) = place.and_then(|at| waiters.queue.get_mut(at)) else {
            return Poll::Ready(());
        };
        if place == Some(0) {
            return Poll::Ready(());
        }
        match woken {
            Some(known) => known.clone_from(waker),
            None => *woken = Some(waker.clone()),
        }
        Poll::Pending
    }
}

impl Waiters {
    /// How many stand in front of this one.
    fn place_of(&self, number: u64) -> Option<usize> {
        // Numbers only grow from the front to the back.
        self.queue.binary_search_by_key(&number, |(n, _)| *n).ok()
    }
}

fn line_key(checks: &[Check]) -> LineKey {
    checks
        .iter()
        .map(|check| (check.rule(), check.key()))
        .collect()
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut waiting = lock(&self.lines.0);
        waiting.total -= 1;
        let mut waiters = lock(&self.line.0);
        let place = waiters.place_of(self.number);
        place.and_then(|at| waiters.queue.remove(at));
        let next = waiters.queue.front_mut().filter(|_| place == Some(0));
        let next = next.and_then(|(_, waker)| waker.take());
        if waiters.queue.is_empty() {
            waiting.lines.remove(&self.key);
        }
        drop(waiters);
        drop(waiting);
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

/// Why an acquire that waits took nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct WaitError(pub(crate) Kind);

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    QueueFull,
    LimiterFull,
    TimedOut,
    Unknown(UnknownName),
}

/// The kinds of [`WaitError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitErrorKind {
    /// Too many are waiting: for the same rules and keys, or on this limiter.
    QueueFull,
    /// The patience ran out in the queue.
    TimedOut,
    /// There is no rule of this name.
    UnknownRule,
}

impl WaitError {
    /// What happened.
    #[must_use]
    pub fn kind(&self) -> WaitErrorKind {
        match self.0 {
            Kind::QueueFull | Kind::LimiterFull => WaitErrorKind::QueueFull,
            Kind::TimedOut => WaitErrorKind::TimedOut,
            Kind::Unknown(_) => WaitErrorKind::UnknownRule,
        }
    }
}

impl From<UnknownName> for WaitError {
    fn from(unknown: UnknownName) -> Self {
        Self(Kind::Unknown(unknown))
    }
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::QueueFull => write!(
                f,
                "{CAPACITY} are waiting for units of the same rules and keys already; \
                 turn the caller away, or let fewer wait"
            ),
            Kind::LimiterFull => write!(
                f,
                "too many are waiting on this limiter already (at most {IN_ALL}, and {BEHIND_A_FIRST} behind others); \
                 turn the caller away, or let fewer wait"
            ),
            Kind::TimedOut => f.write_str("the patience ran out in the queue"),
            Kind::Unknown(unknown) => unknown.fmt(f),
        }
    }
}

/// As it is displayed: it comes out of `main`.
impl fmt::Debug for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for WaitError {}
