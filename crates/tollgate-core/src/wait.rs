//! Acquires that wait in a queue until their units are there: in a task, or in a thread.

use std::{
    cell::Cell,
    future::{Future, pending, poll_fn},
    pin::pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use crate::{
    algorithm::Retry,
    check::Check,
    decision::{Decision, Outcome, Reason},
    key::Key,
    limiter::Limiter,
    observe::{self, Waiting},
    rule::Rule,
    store::slot_waiters::{SlotWaiter, SlotWaiters},
    wait_queue::{Kind, Permit, WaitError},
};

#[cfg(feature = "tokio")]
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
    /// among those that wait for the same rules and keys. In memory, so it does when a ticket or a reset brings units back;
    /// on a remote store it takes them when they have refilled.
    ///
    /// The decision is a denial if waiting would take longer than `patience`, which is known in front of the queue at
    /// once, or if the cost can never fit. When [slots](crate::Quota::concurrent) come back is not known: it waits for one until
    /// `patience` is over. Where rules [wait](Rule::wait), those that do not deny at once.
    ///
    /// # Errors
    ///
    /// It would have to wait, and the queue of a rule is [full](crate::Rule::max_waiting), or too many requests wait
    /// on this limiter: at most 16 384 wait in all, and at most 8 192 of them behind others, or more
    /// where the rule says so. Or `patience` ran out before the
    /// front of the queue was reached. Nothing was taken.
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
        let timer = TaskTimer(tokio::time::Instant::now());
        acquire_observed(self, checks, patience, timer).await
    }
}

/// Acquires, and tells operators of the wait, if `reports_wait`, but not of the decision.
#[cfg(feature = "tokio")]
pub(crate) async fn acquire_within(
    limiter: &Limiter,
    checks: &[Check],
    patience: Duration,
    reports_wait: bool,
) -> Result<Decision, WaitError> {
    let timer = TaskTimer(tokio::time::Instant::now());
    match reports_wait {
        true => acquire_observing_wait(limiter, checks, patience, timer).await,
        false => acquire_in_queue(limiter, checks, patience, &timer).await,
    }
}

impl Limiter {
    /// [`wait_blocking`](Self::wait_blocking) for several checks, at costs of their own. It waits in the queue of
    /// `acquire_within`, in the order of arrival.
    ///
    /// The decision is a denial if waiting would take longer than `patience`, which is known in front of the queue at
    /// once, or if the cost can never fit.
    ///
    /// # Errors
    ///
    /// It would have to wait, and the queue of a rule is [full](crate::Rule::max_waiting), or too many requests wait
    /// on this limiter: at most 16 384 wait in all, and at most 8 192 of them behind others, or more
    /// where the rule says so. Or `patience` ran out before the
    /// front of the queue was reached. Nothing was taken.
    ///
    /// In a task of the runtime that a remote store was connected in, it [cannot wait](crate::WaitErrorKind::InTask), and says so at once.
    /// Where that runtime stands still, it [gives up](crate::WaitErrorKind::Unanswered) soon after `patience`; units may have
    /// been taken then.
    pub fn acquire_within_blocking(
        &self,
        checks: &[Check],
        patience: Duration,
    ) -> Result<Decision, WaitError> {
        let store = self.rule_store();
        if !store.may_block() {
            return Err(WaitError(Kind::InTask));
        }
        // The last attempt may take as long as its answers: of a peek, of the acquire, and of what it had waited for.
        let longest = patience.saturating_add(store.answers_within().saturating_mul(3));
        let timer = ThreadTimer::new();
        timer
            .block_on(acquire_observed(self, checks, patience, &timer), longest)
            .unwrap_or(Err(WaitError(Kind::Unanswered)))
    }

    /// Takes the units of one check of the rule with this name as soon as they are there, at the rule's fixed cost, and
    /// blocks the thread for at most `at_most` until then, and for an answer of the store: for threads outside of a runtime. A task
    /// waits with `wait` instead, which needs the feature `tokio`.
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
    /// [`acquire_within_blocking`](Self::acquire_within_blocking).
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

/// The time since an acquire began to wait.
trait Timer {
    fn elapsed(&self) -> Duration;

    /// Ends when so much time has elapsed.
    fn sleep_until(&self, elapsed: Duration) -> impl Future<Output = ()>;
}

impl<T: Timer> Timer for &T {
    fn elapsed(&self) -> Duration {
        (**self).elapsed()
    }

    async fn sleep_until(&self, elapsed: Duration) {
        (**self).sleep_until(elapsed).await;
    }
}

/// A timer that tells operators that an acquire waits, from when it first sleeps.
struct ObservedTimer<'a, T> {
    timer: T,
    limiter: &'a Limiter,
    checks: &'a [Check],
    waiting: OnceLock<Waiting>,
}

impl<T: Timer> Timer for ObservedTimer<'_, T> {
    fn elapsed(&self) -> Duration {
        self.timer.elapsed()
    }

    async fn sleep_until(&self, elapsed: Duration) {
        let observer = self.limiter.observer();
        self.waiting.get_or_init(|| observer.waiting(self.checks));
        self.timer.sleep_until(elapsed).await;
    }
}

/// Acquires, and tells operators of the decision and of the wait.
async fn acquire_observed(
    limiter: &Limiter,
    checks: &[Check],
    patience: Duration,
    timer: impl Timer,
) -> Result<Decision, WaitError> {
    let started = observe::Timer::start();
    let result = acquire_observing_wait(limiter, checks, patience, timer).await;
    if let Ok(decision) = &result {
        limiter.report(checks, decision, started, "");
    }
    result
}

/// Acquires, and tells operators of the wait.
async fn acquire_observing_wait(
    limiter: &Limiter,
    checks: &[Check],
    patience: Duration,
    timer: impl Timer,
) -> Result<Decision, WaitError> {
    let timer = ObservedTimer {
        timer,
        limiter,
        checks,
        waiting: OnceLock::new(),
    };
    let result = acquire_in_queue(limiter, checks, patience, &timer).await;
    let waited = timer.elapsed();
    match &result {
        Ok(decision) => {
            if let Some(waiting) = timer.waiting.into_inner() {
                waiting.ended(decision, waited);
            }
        }
        Err(error) => {
            let began = timer.waiting.into_inner();
            let waiting = began.unwrap_or_else(|| limiter.observer().waiting(checks));
            match error {
                WaitError(Kind::TimedOut) => waiting.expired(),
                _ => waiting.turned_away(),
            }
        }
    }
    result
}

async fn acquire_in_queue(
    limiter: &Limiter,
    checks: &[Check],
    patience: Duration,
    timer: &impl Timer,
) -> Result<Decision, WaitError> {
    if let Some(denied) = limiter.blocked(checks) {
        return Ok(denied);
    }
    if let Some(at_most) = limiter.at_most_wait(checks) {
        return acquire_by_rules(limiter, checks, patience.min(at_most), timer).await;
    }
    let permit = match limiter.wait_queues().enter(limiter.rules().rules(), checks) {
        Ok(permit) => permit,
        // Others fill the queues. An acquire with no other in front that finds its units needs no permit.
        Err(full) if limiter.wait_queues().is_free(checks) => {
            let decision = limiter.acquire_unreported(checks).await;
            return decision.is_allowed().then_some(decision).ok_or(full);
        }
        Err(full) => return Err(full),
    };
    if !reaches_front(&permit, patience, timer).await {
        return Err(WaitError(Kind::TimedOut));
    }
    // A shadow counts every attempt, and a block every denial: until the request would pass, it only peeks.
    let mut peeks = !limiter.rules().all_enforced() || limiter.rules().has_blocks();
    let waiters = limiter.rule_store().slot_waiters();
    // Elsewhere others give units back without a notice: then it is known when they refill.
    let hears_units = waiters.is_some_and(|waiters| waiters.poll_every().is_none());
    let of_slots = |check: &Check| holds_slots(limiter.rules().rules(), check);
    let mut listens = checks.iter().any(of_slots);
    let mut was_slots = false;
    loop {
        let release =
            listens.then(|| Release::of(limiter, checks, |check| hears_units || of_slots(check)));
        let decision = if peeks {
            limiter.peek(checks).await
        } else {
            limiter.acquire_unreported(checks).await
        };
        let (retry, lacks_slots) = lacks(limiter, &decision);
        let fits_at = match retry {
            Retry::After(delay) => timer.elapsed().checked_add(delay),
            _ => None,
        };
        match (fits_at, &release) {
            (Some(at), _) if at <= patience && !hears_units => timer.sleep_until(at).await,
            // Once more, so that nothing that comes back meanwhile is missed.
            (Some(at), None) if at <= patience => listens = true,
            (Some(at), Some(release)) if at <= patience => release.wait(at, timer).await,
            (None, Some(release))
                if lacks_slots && retry == Retry::Now && timer.elapsed() < patience =>
            {
                was_slots = true;
                release.wait(patience, timer).await;
            }
            _ if peeks => peeks = false,
            _ if was_slots && decision.reason() == Some(Reason::Slots) => {
                return Ok(decision.denied_for(Reason::WaitExpired));
            }
            _ => return Ok(decision),
        }
    }
}

/// When the rates let a denied request pass, and whether slots deny it as well, which come back at no known time.
fn lacks(limiter: &Limiter, decision: &Decision) -> (Retry, bool) {
    let rules = limiter.rules();
    let mut lacks = (Retry::Now, false);
    for verdict in decision.verdicts() {
        if verdict.outcome() != Outcome::Deny || !rules.enforces(verdict.rule()) {
            continue;
        }
        if verdict.is_blocked() {
            lacks.0 = Retry::Never;
        } else if verdict.is_of_slots() && verdict.retry() != Retry::Never {
            lacks.1 = true;
        } else {
            lacks.0 = lacks.0.or_later(verdict.retry());
        }
    }
    lacks
}

/// Whether a check is of slots.
fn holds_slots(rules: &[Rule], check: &Check) -> bool {
    let rule = rules.get(usize::from(check.rule()));
    rule.is_some_and(Rule::has_slots)
}

/// The next slots that come back.
struct Release<'a> {
    waiter: Option<SlotWaiter<'a>>,
    poll_every: Option<Duration>,
}

/// How often a store without wake-ups is asked for slots.
const ASK_AGAIN: Duration = Duration::from_millis(100);

impl<'a> Release<'a> {
    /// Of slots of these checks. To be made before the request asks, so that no release is missed.
    fn of(limiter: &'a Limiter, checks: &[Check], of_slots: impl Fn(&Check) -> bool) -> Self {
        let waiters = limiter.rule_store().slot_waiters();
        let keys = checks.iter().filter(|check| of_slots(check));
        Self {
            waiter: waiters.map(|waiters| waiters.wait(keys.map(Check::key))),
            poll_every: waiters.map_or(Some(ASK_AGAIN), SlotWaiters::poll_every),
        }
    }

    /// Ends when it is time to ask again, and at `patience` at the latest.
    async fn wait(&self, patience: Duration, timer: &impl Timer) {
        let mut released = pin!(async {
            match &self.waiter {
                Some(waiter) => waiter.released().await,
                None => pending().await,
            }
        });
        // Slots of other processes may come back sooner, without a notice.
        let poll_every = self.poll_every;
        let asks_at = poll_every.map(|pause| timer.elapsed().saturating_add(pause));
        let asks_at = asks_at.map_or(patience, |at| at.min(patience));
        let mut timeout = pin!(async { timer.sleep_until(asks_at).await });
        let ended = poll_fn(|cx| match released.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => timeout.as_mut().poll(cx),
        });
        ended.await;
    }
}

/// Waits where the rules say to: in the store for units, and in this process for slots.
async fn acquire_by_rules(
    limiter: &Limiter,
    checks: &[Check],
    patience: Duration,
    timer: &impl Timer,
) -> Result<Decision, WaitError> {
    let rules = limiter.rules().rules();
    let has_slots = |check: &Check| {
        let rule = rules.get(usize::from(check.rule()));
        rule.is_some_and(|rule| rule.has_slots() && rule.at_most_wait().is_some())
    };
    let mut permit = None;
    if checks.iter().any(has_slots) {
        // Slots come back in no order, so requests stand in line for them.
        let entered = permit.insert(limiter.wait_queues().enter(rules, checks)?);
        if !reaches_front(entered, patience, timer).await {
            return Err(WaitError(Kind::TimedOut));
        }
    }
    loop {
        let left = patience.saturating_sub(timer.elapsed());
        let release = permit
            .is_some()
            .then(|| Release::of(limiter, checks, has_slots));
        // A shadow counts every attempt, and a block every denial: while no slot is free, it only peeks.
        let counts = !limiter.rules().all_enforced() || limiter.rules().has_blocks();
        let peeks = permit.is_some() && !left.is_zero() && counts;
        let looked = match peeks {
            true => Some(limiter.peek(checks).await),
            false => None,
        };
        let looked = looked.filter(|looked| limiter.waits_for_slots_after(looked));
        let has_looked = looked.is_some();
        let decision = match looked {
            Some(looked) => looked,
            None => limiter.acquire_with_patience(checks, left).await,
        };
        let received = timer.elapsed();
        if decision.is_allowed() && !decision.delay().is_zero() {
            if permit.is_none() {
                // Dropped with an error, the ticket gives the place back.
                let place = limiter.ticket(checks, &decision).cancel_on_drop();
                permit = Some(limiter.wait_queues().enter(rules, checks)?);
                place.forget();
            }
            let place = limiter.ticket(checks, &decision).cancel_on_drop();
            let start = received.saturating_add(decision.delay());
            timer.sleep_until(start).await;
            place.forget();
            let started = limiter.start(checks, decision).await;
            let again = started.retry().delay();
            let again = again.and_then(|delay| timer.elapsed().checked_add(delay));
            match again {
                _ if started.is_allowed() => return Ok(started),
                // When they come back is not known, whatever is typical.
                _ if limiter.waits_for_slots_after(&started) => {}
                _ if started.reason() == Some(Reason::Slots) => return Ok(started),
                Some(again) if again <= patience => timer.sleep_until(again).await,
                _ => return Ok(started.denied_for(Reason::WaitExpired)),
            }
        } else if limiter.waits_for_slots_after(&decision)
            && let Some(release) = release
        {
            release.wait(patience, timer).await;
            if timer.elapsed() >= patience && !has_looked {
                return Ok(decision.denied_for(Reason::WaitExpired));
            }
        } else {
            return Ok(decision);
        }
    }
}

/// Whether the front of the queue is reached before the patience runs out.
async fn reaches_front(permit: &Permit<'_>, patience: Duration, timer: &impl Timer) -> bool {
    // Made when it is polled: an acquire that does not wait needs no runtime with a timer.
    let mut timeout = pin!(async { timer.sleep_until(patience).await });
    poll_fn(|cx| match permit.poll_front(cx.waker()) {
        Poll::Ready(()) => Poll::Ready(true),
        Poll::Pending => timeout.as_mut().poll(cx).map(|()| false),
    })
    .await
}

/// The timer of a task, by the time of its tokio runtime.
#[cfg(feature = "tokio")]
struct TaskTimer(tokio::time::Instant);

#[cfg(feature = "tokio")]
impl Timer for TaskTimer {
    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    async fn sleep_until(&self, elapsed: Duration) {
        tokio::time::sleep(elapsed.saturating_sub(self.elapsed())).await;
    }
}

/// The timer of a thread, which is parked until then.
struct ThreadTimer {
    start: Instant,
    /// When the future that is polled wants to be polled again.
    wake_at: Cell<Option<Duration>>,
}

impl ThreadTimer {
    #[expect(
        clippy::disallowed_methods,
        reason = "a thread is blocked for real time, whatever clock the store has"
    )]
    fn new() -> Self {
        Self {
            start: Instant::now(),
            wake_at: Cell::new(None),
        }
    }

    /// Waits for a future that sleeps by this timer, for no longer than this.
    fn block_on<T>(&self, future: impl Future<Output = T>, longest: Duration) -> Option<T> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Some(output);
            }
            let left = longest
                .checked_sub(self.elapsed())
                .filter(|left| !left.is_zero())?;
            let wake_at = self.wake_at.take();
            let sleep = wake_at.map_or(left, |at| at.saturating_sub(self.elapsed()));
            thread::park_timeout(sleep.min(left));
        }
    }
}

impl Timer for ThreadTimer {
    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    async fn sleep_until(&self, elapsed: Duration) {
        poll_fn(|_| {
            if self.elapsed() >= elapsed {
                return Poll::Ready(());
            }
            // Several may sleep at once: the first to wake is polled with the others.
            let wake_at = self.wake_at.get().map_or(elapsed, |at| at.min(elapsed));
            self.wake_at.set(Some(wake_at));
            Poll::Pending
        })
        .await;
    }
}

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
