//! Waiting in a queue for units, in a task.

use std::{future::poll_fn, time::Duration};

use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    algorithm::Retry,
    check::Check,
    decision::Decision,
    key::Key,
    limiter::Limiter,
    lines::{Kind, WaitError},
};

impl Limiter {
    /// Takes the units of one check of the rule with this name as soon as they are there, at the rule's fixed cost:
    /// [`acquire_within`](Self::acquire_within) in short. The decision may be a denial: when the unit does not come in time, and at
    /// once where a rule denies while its store fails. A loop that only repeats it would spin then.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Clock, Key, Limiter, MemoryStore, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rules = [Rule::new("provider", Quota::per_second(10).burst(1))];
    /// let store = MemoryStore::builder().clock(Clock::tokio()).build();
    /// let limiter = Limiter::new(store, rules)?;
    /// for _ in 0..3 {
    ///     let decision = limiter.wait("provider", &Key::shared(), Duration::from_secs(1)).await?;
    ///     assert!(decision.is_allowed());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// There is no rule of this name, or those of [`acquire_within`](Self::acquire_within). Nothing was taken.
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire_within`](Self::acquire_within).
    ///
    /// # Panics
    ///
    /// As [`acquire_within`](Self::acquire_within).
    pub async fn wait(
        &self,
        rule: &str,
        key: &Key,
        at_most: Duration,
    ) -> Result<Decision, WaitError> {
        let check = self.check(rule, key)?;
        self.acquire_within(&[check], at_most).await
    }

    /// Takes the units as soon as they are there, and waits for them for at most `patience`, in the order of arrival
    /// among those that wait for the same rules and keys.
    ///
    /// The decision is a denial if waiting would take longer than `patience`, which is known in front of the queue at
    /// once, or if the cost can never fit.
    ///
    /// # Errors
    ///
    /// There is something to wait for, and 1 024 are waiting for the same rules and keys already, or too many on this
    /// limiter: 16 384 in all, of whom 8 192 stand behind others. Or `patience` ran out before the front of the queue
    /// was reached. Nothing was taken.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue; where the store is remote, units may have been taken.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with its timer enabled, when there is something to wait for. Threads take
    /// [`acquire_within_blocking`](Self::acquire_within_blocking).
    pub async fn acquire_within(
        &self,
        checks: &[Check],
        patience: Duration,
    ) -> Result<Decision, WaitError> {
        let place = match self.lines().enter(checks) {
            Ok(place) => place,
            // Others fill the queues. Who has nobody in front and finds the units there needs no place.
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
        timeout_at(deadline, poll_fn(|cx| place.poll_front(cx.waker())))
            .await
            .map_err(|_| WaitError(Kind::TimedOut))?;
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
