//! An attempt to take units: it decides, waits, starts, and gives up.
//!
//! Whatever waits does it here: a worker, which is in [`run`](Attempt::run) until it has its units or not, and a layer, which has a
//! request to hold meanwhile and so goes in steps: [`decide`](Attempt::decide), and where the request [waits](Attempt::waits) after
//! that, [`start`](Waiting::start) or [`give_up`](Waiting::give_up).

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::OnceLock,
    task::{Poll, Waker},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use crate::{
    algorithm::Retry,
    check::{Check, Checks},
    coordinator::Ask,
    decision::{Decision, Outcome, Reason},
    key::Key,
    limiter::Limiter,
    observe::{Timer, waiting::WaitReport},
    rule::Rule,
    slot_waiters::SlotWaiter,
    step::{Pending, Step},
    ticket::Ticket,
    wait_queue::{Kind, Permit, Stands, WaitError, WaitErrorKind},
};

impl Limiter {
    /// An attempt to take what a request needs, for a [layer](crate::layer). Operators are not told of its decision: call
    /// [`report`](Self::report) with what the layer knows of the request.
    #[inline]
    pub fn attempt<'a>(&'a self, checks: &'a [Check]) -> Attempt<'a> {
        Attempt {
            limiter: self,
            checks,
            ask: Ask::Acquire,
        }
    }

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
    #[doc(alias = "wait_blocking")]
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
    /// among those that lack units of the same rule and key. In memory, so it does when a ticket or a reset brings units back;
    /// on a remote store it takes them when they have refilled.
    ///
    /// The decision is a denial if waiting would take longer than `patience`, which is known in front of the queue at
    /// once, or if the cost can never fit. When [slots](crate::Quota::concurrent) come back is not known: it waits for one until
    /// `patience` is over. Where rules [wait](crate::Rule::wait), those that do not deny at once.
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
    /// Outside of a tokio runtime with its timer enabled, when there is something to wait for.
    pub async fn acquire_within(
        &self,
        checks: &[Check],
        patience: Duration,
    ) -> Result<Decision, WaitError> {
        let started = Timer::start();
        let decision = self.attempt(checks).within(patience).run().await?;
        self.report(checks, &decision, started, "");
        Ok(decision)
    }
}

/// An attempt to take the units of all checks of a request. Operators are told of its wait, and not of its decision.
#[must_use = "it takes nothing until it decides or runs"]
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    limiter: &'a Limiter,
    checks: &'a [Check],
    ask: Ask,
}

impl<'a> Attempt<'a> {
    /// It waits for no longer than this, also where its rules would let it [wait](crate::Rule::wait) longer. A
    /// [deadline](Self::answered_by) counts instead.
    pub fn within(mut self, patience: Duration) -> Self {
        if !matches!(self.ask, Ask::By(_)) {
            self.ask = Ask::Within(patience);
        }
        self
    }

    /// Whatever it may wait [within](Self::within): [`decide`](Self::decide) does not wait, and what a store answers after the deadline
    /// is a store failure, of an unknown outcome; [`run`](Self::run) waits until the deadline. For a tokio runtime with a timer.
    pub fn answered_by(mut self, deadline: Instant) -> Self {
        self.ask = Ask::By(deadline);
        self
    }

    /// Decides, and takes what the request need not [wait](Self::waits) for. Requests that queue for the same slots go first. It takes no
    /// place in a store's queue, where those that are turned away would leave holes: [`start`](Waiting::start) does.
    ///
    /// # Cancel safety
    ///
    /// Dropping the answer does not give back what was taken.
    #[inline]
    pub fn decide(self) -> Step<Decision> {
        match self.ask {
            Ask::Acquire if !self.limiter.has_waits() => {
                self.limiter.decide(self.checks, Ask::Acquire)
            }
            _ => self.decide_with_waits(),
        }
    }

    /// The same for rules that wait, and for those who say what they wait for.
    fn decide_with_waits(self) -> Step<Decision> {
        let Self {
            limiter,
            checks,
            ask,
        } = self;
        match ask {
            Ask::Acquire => {}
            Ask::Within(_) if !limiter.has_waits() => return limiter.decide(checks, Ask::Acquire),
            ask => return limiter.decide(checks, ask),
        }
        let waits_for_slots = limiter.waits_for_slots(checks);
        if waits_for_slots {
            if let Some(denied) = limiter.blocked(checks) {
                return Step::Ready(denied);
            }
            if !(limiter.wait_queues()).is_free(limiter.rules().rules(), checks) {
                // A slot that becomes free is theirs.
                return Step::Ready(Decision::unlimited(0).denied_for(Reason::Slots));
            }
        }
        // A shadow counts every attempt, and a block every denial: a request that has to wait only looks before.
        let looks = match waits_for_slots {
            true => !limiter.rules().all_enforced(),
            false => limiter.rules().counts_attempts(),
        };
        let at_once = match waits_for_slots {
            true => Ask::Acquire,
            false => Ask::Within(Duration::ZERO),
        };
        match limiter.decide(checks, if looks { Ask::Peek } else { at_once }) {
            Step::Ready(first) => match self.after(&first, looks, at_once) {
                Some(ask) => limiter.decide(checks, ask),
                None => Step::Ready(first),
            },
            Step::Wait(first) => {
                let (limiter, checks) = (limiter.unregistered(), checks.to_vec());
                Step::Wait(Pending::new(async move {
                    let first = first.await;
                    match limiter.attempt(&checks).after(&first, looks, at_once) {
                        Some(ask) => limiter.decide(&checks, ask).await,
                        None => first,
                    }
                }))
            }
        }
    }

    /// How the store is asked once more after its first answer.
    fn after(self, first: &Decision, has_looked: bool, at_once: Ask) -> Option<Ask> {
        match first.is_allowed() {
            _ if self.waits(first) => None,
            true => has_looked.then_some(at_once),
            false if has_looked => Some(Ask::Acquire),
            // What it would wait for denies nothing.
            false => (matches!(at_once, Ask::Within(_))
                && self.limiter.is_denied_by_others_too(first))
            .then_some(Ask::Acquire),
        }
    }

    /// Whether the request waits after this decision of [`decide`](Self::decide): for units, or for slots.
    #[inline]
    #[must_use]
    pub fn waits(self, decision: &Decision) -> bool {
        self.limiter.has_waits()
            && (!decision.delay().is_zero()
                || self.limiter.waits_for_slots_after(decision)
                || self.limiter.would_wait(self.checks, decision))
    }

    /// What this decision has taken, which goes back if the ticket is dropped before operators are told of the decision.
    pub fn ticket(self, decision: &Decision) -> Ticket {
        let ticket = self.limiter.ticket(self.checks, decision);
        ticket.unreported().cancel_on_drop()
    }

    /// The request as it waits after this decision.
    #[inline]
    pub fn wait(self, decision: Decision) -> Waiting {
        let place = (!decision.delay().is_zero()).then(|| self.ticket(&decision));
        Waiting {
            limiter: self.limiter.unregistered(),
            checks: Checks::from_slice(self.checks),
            decision,
            place,
        }
    }

    /// Takes the units as soon as they are there: see [`Limiter::acquire_within`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::acquire_within`].
    ///
    /// # Cancel safety
    ///
    /// As for [`Limiter::acquire_within`].
    ///
    /// # Panics
    ///
    /// As [`Limiter::acquire_within`].
    pub async fn run(self) -> Result<Decision, WaitError> {
        let (limiter, checks) = (self.limiter, self.checks);
        let timer = WaitTimer::start(limiter, checks);
        let patience = match self.ask {
            Ask::Within(patience) => patience,
            Ask::By(deadline) => deadline.saturating_duration_since(timer.start),
            Ask::Acquire | Ask::Peek => Duration::MAX,
        };
        let result = acquire_in_queue(limiter, checks, patience, &timer).await;
        let denied_for = match &result {
            Ok(decision) => decision.reason(),
            // It has not tried to wait.
            Err(_) if patience.is_zero() => return result,
            Err(error) => {
                timer.begin_wait();
                Some(match error.kind() {
                    WaitErrorKind::TimedOut => Reason::WaitExpired,
                    _ => Reason::QueueFull,
                })
            }
        };
        timer.ended(denied_for);
        result
    }
}

/// A request that waits, for its delay or for slots. Dropped before it starts, it gives its place in the store's queue back.
#[must_use = "it starts when it is awaited"]
#[derive(Debug)]
pub struct Waiting {
    limiter: Limiter,
    checks: Checks,
    /// Without verdicts: others queue for the slots.
    decision: Decision,
    /// What a delay has taken.
    place: Option<Ticket>,
}

impl Waiting {
    /// Waits until the request may start, and takes what is only taken then: slots, and units of rules that do not wait. The decision
    /// is a denial where these do not fit, or if its rules let it wait no longer.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with its timer enabled.
    pub async fn start(self) -> Decision {
        let Self {
            limiter,
            checks,
            decision,
            place,
        } = self;
        let timer = WaitTimer::start(&limiter, &checks);
        timer.begin_wait();
        let at_most = limiter.at_most_wait(&checks).unwrap_or_default();
        let (first, denied) = match decision.reason() {
            Some(Reason::Quota) => (None, Some(decision)),
            _ => (Some((decision, place)), None),
        };
        let waiting = acquire_by_rules(&limiter, &checks, at_most, first, false, &timer);
        let started = match waiting.await {
            Ok(started) => started,
            Err(full) if full.kind() == WaitErrorKind::QueueFull => match denied {
                Some(denied) => denied.denied_for(Reason::QueueFull),
                None => turn_away(&limiter, &checks).await,
            },
            Err(_) => limiter.peek(&checks).await.denied_for(Reason::WaitExpired),
        };
        timer.ended(started.reason());
        started
    }

    /// The caller has no room for it: it passes if it need not wait any more, or else is denied.
    pub async fn give_up(self) -> Decision {
        let timer = WaitTimer::start(&self.limiter, &self.checks);
        timer.begin_wait();
        drop(self.place);
        let decision = match self.decision.is_allowed() || self.decision.verdicts().is_empty() {
            true => turn_away(&self.limiter, &self.checks).await,
            false => self.decision.denied_for(Reason::QueueFull),
        };
        timer.ended(decision.reason());
        decision
    }
}

/// Decides about a request that may not wait. Slots are for those in line.
async fn turn_away(limiter: &Limiter, checks: &[Check]) -> Decision {
    if limiter.waits_for_slots(checks) {
        return limiter.peek(checks).await.denied_for(Reason::QueueFull);
    }
    let decision = limiter.decide(checks, Ask::Within(Duration::ZERO)).await;
    match decision.is_allowed() {
        true => decision,
        false => decision.denied_for(Reason::QueueFull),
    }
}

/// The time since an acquire began. It tells operators that the acquire waits, from when it first sleeps.
struct WaitTimer<'a> {
    start: Instant,
    limiter: &'a Limiter,
    checks: &'a [Check],
    waiting: OnceLock<WaitReport>,
}

impl<'a> WaitTimer<'a> {
    fn start(limiter: &'a Limiter, checks: &'a [Check]) -> Self {
        Self {
            start: Instant::now(),
            limiter,
            checks,
            waiting: OnceLock::new(),
        }
    }

    /// It waits, from now on if it did not before.
    fn begin_wait(&self) {
        let begin = || WaitReport::begin(self.limiter.rules(), self.checks);
        self.waiting.get_or_init(begin);
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Ends when so much time has elapsed.
    async fn sleep_until(&self, elapsed: Duration) {
        self.begin_wait();
        sleep(elapsed.saturating_sub(self.elapsed())).await;
    }

    /// Whether this ends before so much time has elapsed.
    async fn ends_before(&self, elapsed: Duration, this: impl Future<Output = ()>) -> bool {
        // The timer is made when it is polled: an acquire that does not wait needs no runtime with one.
        let (mut this, mut timeout) = (pin!(this), pin!(self.sleep_until(elapsed)));
        poll_fn(|cx| match this.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending => timeout.as_mut().poll(cx).map(|()| false),
        })
        .await
    }

    /// Whether the front of the queue is reached before the patience runs out. Without any it does not begin to wait.
    async fn reaches_front(&self, permit: &Permit<'_>, patience: Duration) -> bool {
        if patience.is_zero() {
            return permit.poll_front(Waker::noop()).is_ready();
        }
        let front = poll_fn(|cx| permit.poll_front(cx.waker()));
        self.ends_before(patience, front).await
    }

    /// Ends when slots have come back or it is time to ask again, and at `patience` at the latest.
    async fn release(&self, slots: &SlotWaiter, patience: Duration) {
        // Slots of other processes may come back sooner, without a notice.
        let pause = self.limiter.rule_store().asks_for_slots_every();
        let asks_at = pause.map_or(Duration::MAX, |it| self.elapsed().saturating_add(it));
        let until = asks_at.min(patience);
        self.ends_before(until, slots.released()).await;
    }

    /// The acquire was allowed, or denied for a reason: operators are told, if it has waited.
    fn ended(self, denied_for: Option<Reason>) {
        let waited = self.elapsed();
        if let Some(waiting) = self.waiting.into_inner() {
            waiting.ended(denied_for, waited);
        }
    }
}

/// Waits in this process, until the units are there.
async fn acquire_in_queue(
    limiter: &Limiter,
    checks: &[Check],
    patience: Duration,
    timer: &WaitTimer<'_>,
) -> Result<Decision, WaitError> {
    if let Some(denied) = limiter.blocked(checks) {
        return Ok(denied);
    }
    if let Some(at_most) = limiter.at_most_wait(checks) {
        let patience = patience.min(at_most);
        return match acquire_by_rules(limiter, checks, patience, None, true, timer).await {
            Err(full)
                if full.kind() == WaitErrorKind::QueueFull && !limiter.waits_for_slots(checks) =>
            {
                let decision = limiter.decide(checks, Ask::Within(Duration::ZERO)).await;
                let is_in_time = (decision.retry().delay()).is_some_and(|it| it <= patience);
                match is_in_time && limiter.would_wait(checks, &decision) {
                    true => Err(full),
                    false => Ok(decision),
                }
            }
            result => result,
        };
    }
    let (queues, rules) = (limiter.wait_queues(), limiter.rules().rules());
    let permit = match queues.enter(rules, checks) {
        Ok(permit) => permit,
        // Others fill the queues. An acquire with no other in front that finds its units needs no permit.
        Err(full) if queues.is_free(rules, checks) => {
            let decision = limiter.decide(checks, Ask::Acquire).await;
            return decision.is_allowed().then_some(decision).ok_or(full);
        }
        Err(full) => return Err(full),
    };
    // A shadow counts every attempt, and a block every denial: until the request would pass, it only peeks.
    let mut peeks = limiter.rules().counts_attempts();
    // Elsewhere others give units back without a notice: then it is known when they refill.
    let hears_units = limiter.rule_store().asks_for_slots_every().is_none();
    let of_slots = |check: &Check| (limiter.rules().rule_of(check)).is_some_and(Rule::has_slots);
    let mut listens = checks.iter().any(of_slots);
    let mut was_slots = false;
    loop {
        if !timer.reaches_front(&permit, patience).await {
            return Err(WaitError(Kind::TimedOut));
        }
        let release = listens.then(|| {
            let heard = checks.iter().filter(|it| hears_units || of_slots(it));
            SlotWaiter::new(heard.map(Check::key))
        });
        let ask = if peeks { Ask::Peek } else { Ask::Acquire };
        let decision = limiter.decide(checks, ask).await;
        // One that has only looked stays in front of what it is about to take.
        if !peeks || !decision.is_allowed() {
            permit.lacks(rules, &denied_checks(limiter, checks, &decision));
        }
        let (retry, lacks_slots) = lacks(limiter, &decision);
        let fits_at = match retry {
            Retry::After(delay) => timer.elapsed().checked_add(delay),
            _ => None,
        };
        match (fits_at, &release) {
            (Some(at), _) if at <= patience && !hears_units => timer.sleep_until(at).await,
            // Once more, so that nothing that comes back meanwhile is missed.
            (Some(at), None) if at <= patience => listens = true,
            (Some(at), Some(release)) if at <= patience => timer.release(release, at).await,
            (None, Some(release))
                if lacks_slots && retry == Retry::Now && timer.elapsed() < patience =>
            {
                was_slots = true;
                timer.release(release, patience).await;
            }
            _ if peeks => peeks = false,
            _ if was_slots && decision.reason() == Some(Reason::Slots) => {
                return Ok(decision.denied_for(Reason::WaitExpired));
            }
            _ => return Ok(decision),
        }
    }
}

/// The checks that deny.
fn denied_checks(limiter: &Limiter, checks: &[Check], decision: &Decision) -> Checks {
    let denied = limiter.of_enforced(checks, decision, Outcome::Deny);
    denied.map(|(check, _)| *check).collect()
}

/// When the rates let a denied request pass, and whether slots deny it as well, which come back at no known time.
fn lacks(limiter: &Limiter, decision: &Decision) -> (Retry, bool) {
    let mut lacks = (Retry::Now, false);
    for verdict in limiter.rules().denials(decision) {
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

/// Waits where the rules say to: in the store for units, and in this process for slots. `first`: what is decided already, with the
/// place that it has taken. One that does not try again is denied where it finds at its start that rules that do not wait deny it.
async fn acquire_by_rules(
    limiter: &Limiter,
    checks: &[Check],
    patience: Duration,
    mut first: Option<(Decision, Option<Ticket>)>,
    tries_again: bool,
    timer: &WaitTimer<'_>,
) -> Result<Decision, WaitError> {
    let (queues, rules) = (limiter.wait_queues(), limiter.rules().rules());
    let waits_for_slots = limiter.waits_for_slots(checks);
    let (mut permit, mut counted) = (None, None);
    loop {
        // Before the store is asked for a place in its queue. Slots come back in no order, so requests stand in line for them.
        if first.is_none() && permit.is_none() && counted.is_none() {
            if waits_for_slots {
                permit = Some(queues.enter(rules, checks)?);
            } else if !patience.is_zero() {
                counted = Some(queues.count(rules, checks, Stands::InNone)?);
            }
        }
        if let Some(permit) = &permit
            && !timer.reaches_front(permit, patience).await
        {
            return Err(WaitError(Kind::TimedOut));
        }
        let left = patience.saturating_sub(timer.elapsed());
        let in_line = permit.is_some();
        let release = in_line.then(|| {
            let waited_for = limiter.slots_waited_for(checks);
            SlotWaiter::new(waited_for.map(|(_, check)| check.key()))
        });
        // A shadow counts every attempt, and a block every denial: while no slot is free, it only peeks.
        let looked = match in_line && !left.is_zero() && limiter.rules().counts_attempts() {
            true => Some(limiter.peek(checks).await),
            false => None,
        };
        let lacks_slots = |looked: &Decision| limiter.waits_for_slots_after(looked);
        let (decision, place) = match (first.take(), looked.filter(lacks_slots)) {
            (Some(first), _) => first,
            (None, Some(looked)) => (looked, None),
            (None, None) => (limiter.decide(checks, Ask::Within(left)).await, None),
        };
        let received = timer.elapsed();
        if decision.is_allowed() && !decision.delay().is_zero() {
            // Dropped with an error, the ticket gives the place back.
            let place = place.unwrap_or_else(|| limiter.attempt(checks).ticket(&decision));
            match &permit {
                // Slots that are free meanwhile are for those behind it.
                Some(permit) => permit.lacks(rules, &[]),
                None if counted.is_none() => {
                    counted = Some(queues.count(rules, checks, Stands::InNone)?);
                }
                None => {}
            }
            timer
                .sleep_until(received.saturating_add(decision.delay()))
                .await;
            let started = limiter.start_from(place, checks, decision).await;
            let again = started
                .retry()
                .delay()
                .and_then(|delay| timer.elapsed().checked_add(delay));
            match again {
                _ if started.is_allowed() => return Ok(started),
                // When they come back is not known, whatever is typical.
                _ if limiter.waits_for_slots_after(&started) => counted = None,
                _ if !tries_again || started.reason() == Some(Reason::Slots) => return Ok(started),
                Some(again) if again <= patience => timer.sleep_until(again).await,
                _ => return Ok(started.denied_for(Reason::WaitExpired)),
            }
        } else if waits_for_slots && limiter.waits_for_slots_after(&decision) {
            // One that is not in line yet stands there next.
            if let Some((permit, release)) = permit.as_ref().zip(release) {
                // Its numbers are those of the end of the wait.
                if left.is_zero() {
                    return Ok(decision.denied_for(Reason::WaitExpired));
                }
                permit.lacks(rules, &denied_checks(limiter, checks, &decision));
                timer.release(&release, patience).await;
            }
        } else {
            return Ok(decision);
        }
    }
}
