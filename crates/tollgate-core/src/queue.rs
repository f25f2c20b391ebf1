//! Waiting in line for units.

use std::{collections::HashMap, error::Error, fmt, sync::Arc, time::Duration};

use tokio::{
    sync::Semaphore,
    time::{Instant, sleep, timeout_at},
};

use crate::{
    algorithm::Retry,
    decision::Decision,
    key::Fingerprint,
    limiter::Limiter,
    store::Check,
    sync::{Mutex, lock},
};

/// How many may wait at once on one limiter.
const CAPACITY: usize = 1_024;

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
struct Line {
    head: Semaphore,
    waiting: std::sync::atomic::AtomicUsize,
}

/// A place in a line. Leaving gives it back.
struct Place<'a> {
    lines: &'a Lines,
    key: LineKey,
    line: Arc<Line>,
}

impl Lines {
    fn enter(&self, checks: &[Check]) -> Result<Place<'_>, WaitError> {
        use std::sync::atomic::Ordering::Relaxed;
        let key: LineKey = checks
            .iter()
            .map(|check| (check.rule(), check.key()))
            .collect();
        let mut waiting = lock(&self.0);
        if waiting.total >= CAPACITY {
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

impl Limiter {
    /// Takes the units as soon as they are there, and waits for them for at most `patience`, in the order of arrival
    /// among those that wait for the same rules and keys.
    ///
    /// The decision is a denial if waiting would take longer than `patience`, which is known at the head of the line at
    /// once, or if the cost can never fit.
    ///
    /// # Errors
    ///
    /// 1 024 are waiting on this limiter already, or `patience` ran out before the head of the line was reached. Nothing
    /// was taken.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line; where the store is remote, units may have been taken.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with its timer enabled, when there is something to wait for.
    pub async fn acquire_within(
        &self,
        checks: &[Check],
        patience: Duration,
    ) -> Result<Decision, WaitError> {
        let place = self.lines().enter(checks)?;
        // A `patience` beyond the clock's range is as good as thirty years.
        let deadline = Instant::now()
            .checked_add(patience)
            .unwrap_or_else(|| Instant::now() + Duration::from_secs(86_400 * 365 * 30));
        let timed_out = WaitError {
            kind: WaitErrorKind::TimedOut,
        };
        let _head = match place.line.head.try_acquire() {
            Ok(head) => head,
            Err(_) => timeout_at(deadline, place.line.head.acquire())
                .await
                .map_err(|_| timed_out.clone())?
                // The semaphore is never closed.
                .map_err(|_| timed_out)?,
        };
        // A shadow counts every attempt: until the request would pass, it only looks.
        let mut looks = !self.rules().all_enforced();
        loop {
            let decision = if looks {
                self.peek(checks).await
            } else {
                self.acquire(checks).await
            };
            match decision.retry() {
                Retry::After(delay)
                    if !decision.is_allowed()
                        && Instant::now()
                            .checked_add(delay)
                            .is_some_and(|at| at <= deadline) =>
                {
                    sleep(delay).await;
                }
                _ if looks => looks = false,
                _ => return Ok(decision),
            }
        }
    }
}

/// Why an acquire that waits took nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitError {
    kind: WaitErrorKind,
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
