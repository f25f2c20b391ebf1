//! The lines in which acquires wait.

use std::{collections::HashMap, error::Error, fmt, sync::Arc};

use tokio::sync::Semaphore;

use crate::{
    key::Fingerprint,
    store::Check,
    sync::{Mutex, lock},
};

/// How many may wait at once on one limiter.
const CAPACITY: usize = 1_024;

/// And with the first of each line. One client that fills the places must not take them from all others.
const WITH_THE_FIRST: usize = 16 * CAPACITY;

type LineKey = Vec<(u16, Fingerprint)>;

/// The lines in which acquires wait: one for each set of rules and keys.
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

/// One permit, handed on in the order of arrival: who holds it stands at the head of the line.
pub(crate) struct Line {
    pub(crate) head: Semaphore,
    waiting: std::sync::atomic::AtomicUsize,
}

/// A place in a line. Leaving gives it back.
pub(crate) struct Place<'a> {
    lines: &'a Lines,
    key: LineKey,
    pub(crate) line: Arc<Line>,
}

impl Lines {
    pub(crate) fn enter(&self, checks: &[Check]) -> Result<Place<'_>, WaitError> {
        use std::sync::atomic::Ordering::Relaxed;
        let key = line_key(checks);
        let mut waiting = lock(&self.0);
        let capacity = if waiting.lines.contains_key(&key) {
            CAPACITY
        } else {
            WITH_THE_FIRST
        };
        if waiting.total >= capacity {
            return Err(WaitError {
                kind: WaitErrorKind::QueueFull,
            });
        }
        waiting.total += 1;
        let line = waiting.lines.entry(key.clone()).or_insert_with(|| {
            Arc::new(Line {
                head: Semaphore::new(1),
                waiting: 0.into(),
            })
        });
        line.waiting.fetch_add(1, Relaxed);
        let line = Arc::clone(line);
        drop(waiting);
        Ok(Place {
            lines: self,
            key,
            line,
        })
    }

    /// Whether nobody waits for the same rules and keys.
    pub(crate) fn has_no_line(&self, checks: &[Check]) -> bool {
        !lock(&self.0).lines.contains_key(&line_key(checks))
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
        use std::sync::atomic::Ordering::Relaxed;
        let mut waiting = lock(&self.lines.0);
        waiting.total -= 1;
        if self.line.waiting.fetch_sub(1, Relaxed) == 1 {
            waiting.lines.remove(&self.key);
        }
    }
}

/// Why an acquire that waits took nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitError {
    pub(crate) kind: WaitErrorKind,
}

/// The kinds of [`WaitError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitErrorKind {
    /// As many as may wait are waiting.
    QueueFull,
    /// The patience ran out in the line.
    TimedOut,
}

impl WaitError {
    /// What happened.
    #[must_use]
    pub fn kind(&self) -> WaitErrorKind {
        self.kind
    }
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            WaitErrorKind::QueueFull => write!(f, "{CAPACITY} are waiting for units already"),
            WaitErrorKind::TimedOut => f.write_str("the patience ran out in the line"),
        }
    }
}

impl Error for WaitError {}
