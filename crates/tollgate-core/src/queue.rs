//! Waiting in line for units.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    algorithm::Retry,
    decision::Decision,
    limiter::Limiter,
    lines::{WaitError, WaitErrorKind},
    store::Check,
};

impl Limiter {
    /// Takes the units as soon as they are there, and waits for them for at most `patience`, in the order of arrival
    /// among those that wait for the same rules and keys.
    ///
    /// The decision is a denial if waiting would take longer than `patience`, which is known at the head of the line at
    /// once, or if the cost can never fit.
    ///
    /// # Errors
    ///
    /// There is something to wait for, 1 024 are waiting on this limiter already and one of them for the same rules and
    /// keys (or 16 384, for whatever keys), or `patience` ran out before the head of the line was reached. Nothing
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
        let place = match self.lines().enter(checks) {
            Ok(place) => place,
            // Others fill the lines. Who has nobody in front and finds the units there needs no place.
            Err(full) if self.lines().has_no_line(checks) => {
                let decision = self.acquire(checks).await;
                return decision.is_allowed().then_some(decision).ok_or(full);
            }
            Err(full) => return Err(full),
        };
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
