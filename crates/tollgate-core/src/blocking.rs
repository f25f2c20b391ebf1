//! Waiting in a queue for units, in a thread.

use std::{
    future::IntoFuture,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use crate::{
    algorithm::Retry,
    check::Check,
    decision::Decision,
    key::Key,
    limiter::Limiter,
    lines::{Kind, WaitError},
};

impl Limiter {
    /// [`wait_blocking`](Self::wait_blocking) for several checks, at costs of their own. It waits in the queue of
    /// `acquire_within`, in the order of arrival.
    ///
    /// The decision is a denial if waiting would take longer than `patience`, which is known in front of the queue at
    /// once, or if the cost can never fit.
    ///
    /// # Errors
    ///
    /// There is something to wait for, and 1 024 are waiting for the same rules and keys already, or too many on this
    /// limiter: 16 384 in all, of whom 8 192 stand behind others. Or `patience` ran out before the front of the queue
    /// was reached. Nothing was taken.
    pub fn acquire_within_blocking(
        &self,
        checks: &[Check],
        patience: Duration,
    ) -> Result<Decision, WaitError> {
        let thread = Waker::from(Arc::new(Unpark(thread::current())));
        let place = match self.lines().enter(checks) {
            Ok(place) => place,
            // As in `acquire_within`.
            Err(full) if self.lines().has_no_line(checks) => {
                let decision = block_on(self.acquire(checks), &thread);
                return decision.is_allowed().then_some(decision).ok_or(full);
            }
            Err(full) => return Err(full),
        };
        // `None` is beyond the clock's range, and as good as never.
        let deadline = now().checked_add(patience);
        while place.poll_front(&thread).is_pending() {
            if !park_until(deadline) {
                return Err(WaitError(Kind::TimedOut));
            }
        }
        // A shadow counts every attempt: until the request would pass, it only looks.
        let mut looks = !self.rules().all_enforced();
        loop {
            let decision = if looks {
                block_on(self.peek(checks), &thread)
            } else {
                block_on(self.acquire(checks), &thread)
            };
            let at = match decision.retry() {
                Retry::After(delay) if !decision.is_allowed() => now().checked_add(delay),
                _ => None,
            };
            match at {
                Some(at) if deadline.is_none_or(|deadline| at <= deadline) => {
                    while park_until(Some(at)) {}
                }
                _ if looks => looks = false,
                _ => return Ok(decision),
            }
        }
    }

    /// Takes the units of one check of the rule with this name as soon as they are there, at the rule's fixed cost, and
    /// blocks the thread for at most `at_most` until then: for threads outside of a runtime. A task waits with `wait`
    /// instead, which needs the feature `tokio`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Key, Limiter, MemoryStore, Quota, Rule};
    ///
    /// let rules = [Rule::new("provider", Quota::per_second(100).burst(1))];
    /// let limiter = Limiter::new(MemoryStore::new(), rules)?;
    /// for _ in 0..3 {
    ///     let decision = limiter.wait_blocking("provider", &Key::shared(), Duration::from_secs(9))?;
    ///     assert!(decision.is_allowed());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// There is no rule of this name, or those of
    /// [`acquire_within_blocking`](Self::acquire_within_blocking). Nothing was taken.
    pub fn wait_blocking(
        &self,
        rule: &str,
        key: &Key,
        at_most: Duration,
    ) -> Result<Decision, WaitError> {
        let check = self.check(rule, key)?;
        self.acquire_within_blocking(&[check], at_most)
    }
}

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for an answer. A store answers within its deadline.
fn block_on<T>(step: impl IntoFuture<Output = T>, thread: &Waker) -> T {
    let mut answer = pin!(step.into_future());
    loop {
        match answer.as_mut().poll(&mut Context::from_waker(thread)) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => thread::park(),
        }
    }
}

/// Parks until then, or until the thread is woken; forever without a time. False if the time has come.
fn park_until(at: Option<Instant>) -> bool {
    let Some(at) = at else {
        thread::park();
        return true;
    };
    let left = at.saturating_duration_since(now());
    if left.is_zero() {
        return false;
    }
    thread::park_timeout(left);
    true
}

#[expect(
    clippy::disallowed_methods,
    reason = "a thread is blocked for real time, whatever clock the store has"
)]
fn now() -> Instant {
    Instant::now()
}
