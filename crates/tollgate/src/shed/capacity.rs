//! How much of the capacity is in use.

use std::{
    future::pending,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{runtime::Handle, task::AbortHandle, time::Instant};
use tollgate_core::{AlgorithmKind, Check, Decision, Key, Limiter, Pending, RuleError, Step};

use crate::{diagnostics::wrong_setting, key::look_ups::with_timer, shed::adaptive::AdaptiveLimit};

/// How long the share of slots in use is believed.
const SLOTS_ARE_READ_EACH: Duration = Duration::from_millis(50);

/// How long a store may take to tell it before another request asks.
const SLOTS_ARE_TOLD_WITHIN: Duration = Duration::from_secs(1);

/// What a service can take, and how much of it is in use.
///
/// | capacity | in use | for |
/// | --- | --- | --- |
/// | [`adaptive`](Self::adaptive) | requests in flight, against a number that is found from latency | a start: nothing to configure |
/// | [`in_flight`](Self::in_flight) | requests in flight, against your number | a service whose limit is known, from a load test |
/// | [`worker_delay`](Self::worker_delay) | the time until a ready task is polled | handlers that compute |
/// | [`slots`](Self::slots) | the slots of a rule that are taken | a limit that several processes share |
/// | [`measured`](Self::measured) | what your function says | processor time, the depth of a queue |
///
/// A request is in flight from its arrival until its response body has ended or is dropped. Handlers that compute without awaiting
/// keep their workers from accepting others: no more are in flight than there are workers, and the first two shed nothing. Take
/// `worker_delay`, or move the work to `spawn_blocking`.
#[derive(Clone)]
#[must_use = "a capacity does nothing until a layer has it"]
pub struct Capacity(pub(super) Signal);

#[derive(Clone)]
pub(super) enum Signal {
    InFlight(usize),
    Adaptive(Arc<AdaptiveLimit>),
    Measured(Arc<dyn Fn() -> f64 + Send + Sync>),
}

impl Capacity {
    /// At most this many requests in flight, at least 1.
    ///
    /// One and a half times what the service works on at once keeps it busy, also where P3 is shed from 70 % on: six for four workers.
    /// Then a request waits for one other at most.
    ///
    /// # Errors
    ///
    /// 0, which would shed all that may be shed.
    pub fn in_flight(requests: usize) -> Result<Self, RuleError> {
        if requests == 0 {
            return Err(wrong_setting(
                "a capacity of 0 requests in flight would shed every request below P0: take at least 1",
            ));
        }
        Ok(Self(Signal::InFlight(requests)))
    }

    /// As many requests in flight as keep latency near to what it is without a queue: from 4 to 10 000, found while requests come.
    ///
    /// It begins with 4 at each start of the process, and grows by a quarter in a quarter of a second. Until it is large enough, a busy
    /// service sheds requests that it could serve, for about three seconds where 40 are in flight. If it surely works on 40 at once, take
    /// [`adaptive_within(40, 10_000)`](Self::adaptive_within), which begins with that.
    ///
    /// Latency is that of response heads, of responses below 500. Requests of very different latency hide a queue: give them
    /// layers of their own.
    pub fn adaptive() -> Self {
        Self(Signal::Adaptive(Arc::new(AdaptiveLimit::new(4, 10_000))))
    }

    /// As [`adaptive`](Self::adaptive), between these numbers. It begins with `least`.
    ///
    /// # Errors
    ///
    /// A `least` of 0, or above `most`.
    pub fn adaptive_within(least: usize, most: usize) -> Result<Self, RuleError> {
        if least == 0 || least > most {
            return Err(wrong_setting(format!(
                "an adaptive capacity cannot be found between {least} and {most}: take at least 1, and the smaller number first"
            )));
        }
        Ok(Self(Signal::Adaptive(Arc::new(AdaptiveLimit::new(
            least, most,
        )))))
    }

    /// The time until a task that is ready is polled by tokio's workers: `full` and more is all of the capacity.
    ///
    /// A task of the layer measures it each 10 ms, from the first request on, and ends with the layer. It needs a tokio runtime with its
    /// timer; without one nothing is shed.
    ///
    /// # Errors
    ///
    /// Less than a millisecond, which timers do not measure.
    pub fn worker_delay(full: Duration) -> Result<Self, RuleError> {
        if full < Duration::from_millis(1) {
            return Err(wrong_setting(format!(
                "a delay of {full:?} is less than timers can tell: take at least 1 ms, such as 50 ms"
            )));
        }
        let delay = WorkerDelay::default();
        Ok(Self::measured(move || {
            delay.get().as_secs_f64() / full.as_secs_f64()
        }))
    }

    /// The share of a key's slots that is in use under a rule of [`Quota::concurrent`](tollgate_core::Quota::concurrent), by this limiter.
    ///
    /// A request reads the last known number and waits for nothing. At most each 50 ms one request asks for the next; through Redis
    /// that needs a tokio runtime. While the store does not answer, the last number stands, and it is asked again each second.
    ///
    /// # Errors
    ///
    /// A rule that the limiter does not have, or that is not about slots.
    pub fn slots(limiter: Limiter, rule: &str, key: &Key) -> Result<Self, RuleError> {
        let check = limiter.check(rule, key)?.with_cost(0);
        let quota = limiter.rules().rules()[usize::from(check.rule())].quota();
        if quota.algorithm() != AlgorithmKind::Concurrent {
            return Err(wrong_setting(format!(
                "rule {rule:?} is {quota}, whose use says nothing of what runs now: name a rule of slots, as Quota::concurrent(100)"
            )));
        }
        let slots = Arc::new(SlotsInUse {
            limiter,
            check,
            asked: Mutex::default(),
            share: AtomicU64::new(0),
        });
        Ok(Self::measured(move || slots.share()))
    }

    /// A share that you measure: 0 is idle, 1 and more is full. Called for each request, so it should read a number and not make
    /// one. Not a number is 0.
    pub fn measured(share: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        Self(Signal::Measured(Arc::new(share)))
    }

    /// The requests in flight that are all of it.
    pub(super) fn limit(&self) -> Option<usize> {
        match &self.0 {
            Signal::InFlight(limit) => Some(*limit),
            Signal::Adaptive(limit) => Some(limit.get()),
            Signal::Measured(_) => None,
        }
    }
}

tollgate_core::debug_fields!(Capacity, it => limit: it.limit());

/// The last known share of the slots of one key.
struct SlotsInUse {
    limiter: Limiter,
    check: Check,
    asked: Mutex<Asked>,
    /// The bits of an `f64`.
    share: AtomicU64,
}

#[derive(Default)]
struct Asked {
    at: Option<Instant>,
    /// The task that waits for an answer.
    waiting: Option<AbortHandle>,
}

impl SlotsInUse {
    fn share(self: &Arc<Self>) -> f64 {
        if self.is_due() {
            match self.limiter.peek(&[self.check]) {
                Step::Ready(decision) => self.answered(&decision),
                Step::Wait(decision) => self.wait_for(decision),
            }
        }
        f64::from_bits(self.share.load(Ordering::Relaxed))
    }

    /// Whether this request asks. A question that nobody has answered in time is given up, so that no late answer counts.
    fn is_due(&self) -> bool {
        let Ok(mut asked) = self.asked.try_lock() else {
            return false;
        };
        let waiting = asked.waiting.as_ref().filter(|it| !it.is_finished());
        let pause = waiting.map_or(SLOTS_ARE_READ_EACH, |_| SLOTS_ARE_TOLD_WITHIN);
        if asked.at.is_some_and(|at| at.elapsed() < pause) {
            return false;
        }
        if let Some(waiting) = waiting {
            waiting.abort();
        }
        asked.at = Some(Instant::now());
        true
    }

    fn wait_for(self: &Arc<Self>, decision: Pending<Decision>) {
        if let Ok(runtime) = Handle::try_current() {
            let slots = Arc::clone(self);
            let task = runtime.spawn(async move { slots.answered(&decision.await) });
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.waiting = Some(task.abort_handle());
        }
    }

    fn answered(&self, decision: &Decision) {
        let verdict = decision.verdicts().first();
        if let Some(verdict) = verdict.filter(|it| it.knows_remaining()) {
            let rule = &self.limiter.rules().rules()[verdict.rule()];
            let limit = rule.quota_of(verdict.plan()).limit();
            let used = limit.saturating_sub(verdict.remaining());
            let share = used as f64 / limit.max(1) as f64;
            self.share.store(share.to_bits(), Ordering::Relaxed);
        }
    }
}

/// How often it is measured. A timer of tokio is late by up to a millisecond by itself.
const INTERVAL: Duration = Duration::from_millis(10);

/// The delay, measured by a task that ends with this value.
#[derive(Debug, Default)]
struct WorkerDelay {
    /// In microseconds: a mean that gives the newest measurement a quarter.
    micros: Arc<AtomicU64>,
    task: Mutex<Option<AbortHandle>>,
}

impl WorkerDelay {
    fn get(&self) -> Duration {
        // Its runtime may have ended. Without one, nothing is measured.
        if let Ok(mut task) = self.task.try_lock()
            && task.as_ref().is_none_or(AbortHandle::is_finished)
        {
            self.micros.store(0, Ordering::Relaxed);
            let measuring = |runtime: Handle| runtime.spawn(measure(Arc::clone(&self.micros)));
            *task = Handle::try_current()
                .ok()
                .map(|runtime| measuring(runtime).abort_handle());
        }
        Duration::from_micros(self.micros.load(Ordering::Relaxed))
    }
}

impl Drop for WorkerDelay {
    fn drop(&mut self) {
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task {
            task.abort();
        }
    }
}

async fn measure(micros: Arc<AtomicU64>) {
    if with_timer(|| tokio::time::sleep(INTERVAL)).is_err() {
        // A task that has ended would be started again by each request.
        pending::<()>().await;
    }
    loop {
        let due = Instant::now() + INTERVAL;
        tokio::time::sleep_until(due).await;
        let lateness = due.elapsed().saturating_sub(Duration::from_millis(1));
        let late = u64::try_from(lateness.as_micros()).unwrap_or(u64::MAX);
        let before = micros.load(Ordering::Relaxed);
        micros.store(before - before / 4 + late / 4, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::{runtime::Builder, task::yield_now, time::advance};
    use tollgate_core::{MemoryStore, Quota, Rule};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_store_is_asked_again_for_slots_when_it_has_answered_or_after_a_second() {
        let rule = Rule::new("exports", Quota::concurrent(2));
        let limiter = Limiter::new(MemoryStore::new(), [rule]).expect("a valid rule");
        let check = limiter
            .check("exports", &Key::shared())
            .expect("it is there");
        let slots = Arc::new(SlotsInUse {
            limiter,
            check,
            asked: Mutex::default(),
            share: AtomicU64::new(0),
        });
        assert!(slots.is_due() && !slots.is_due());
        slots.wait_for(Pending::new(pending()));
        advance(Duration::from_millis(999)).await;
        assert!(!slots.is_due());
        advance(Duration::from_millis(1)).await;
        assert!(slots.is_due());
        // The late one holds nothing any more.
        yield_now().await;
        assert_eq!(Arc::strong_count(&slots), 1);
        advance(SLOTS_ARE_READ_EACH).await;
        assert!(slots.is_due());
    }

    #[test]
    fn a_runtime_without_a_timer_is_asked_once_and_sheds_nothing() {
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let delay = WorkerDelay::default();
        runtime.block_on(async {
            assert_eq!(delay.get(), Duration::ZERO);
            yield_now().await;
            yield_now().await;
        });
        let task = delay.task.lock().expect("no panic");
        assert!(task.as_ref().is_some_and(|task| !task.is_finished()));
    }
}
