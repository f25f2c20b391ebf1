//! Slots that this process has on lease, for requests.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::{
    sync::oneshot,
    time::{Instant, Timeout, timeout_at},
};
use tollgate_core::{
    Check, Decision, Outcome, Pending, Retry, Source, Step, Tick, Verdict,
    algorithm::{Algorithm as _, Assessment, Concurrent, ConcurrentState},
    store::Checks,
};
use tollgate_prefilter::{LeasedStart, SlotKey};

use crate::store::{
    inner::Inner, process_slots::SlotTarget, reported::Reported, slots::slot_reporter::report,
};

/// Decides a request with slots on lease: these first, then all else by `decide`, if there is anything.
pub(crate) fn acquire_leased(
    inner: &Arc<Inner>,
    checks: &[Check],
    decide: impl FnOnce(&[Check]) -> Step<Decision> + Send + 'static,
) -> Step<Decision> {
    let mut slots = LeasedSlots::new(inner);
    let mut reply = match slots.start(checks) {
        Start::Wait(reply) => reply,
        Start::Known => return slots.decide(Checks::from_slice(checks), decide),
    };
    let (by, checks) = (
        Instant::now() + inner.shared.deadline,
        Checks::from_slice(checks),
    );
    Step::Wait(Pending::new(async move {
        loop {
            let replied = slots.within(by, reply).await;
            if !matches!(replied, Ok(Ok(Reported::Replied))) {
                slots.fail(&checks);
                break;
            }
            match slots.start(&checks) {
                Start::Wait(next) => reply = next,
                Start::Known => break,
            }
        }
        slots.decide(checks, decide).await
    }))
}

enum Start {
    /// All slots are given, or some are denied.
    Known,
    /// Redis has to grant more.
    Wait(oneshot::Receiver<Reported>),
}

/// The slots that a request was given, until its decision holds them. Dropped before, they go back.
struct LeasedSlots {
    inner: Arc<Inner>,
    given: SmallVec<[Given; 1]>,
    /// The checks of slots on lease, with their indices.
    verdicts: SmallVec<[(usize, Verdict); 2]>,
}

struct Given {
    key: SlotKey,
    number: u64,
    slots: u32,
}

impl LeasedSlots {
    fn new(inner: &Arc<Inner>) -> Self {
        Self {
            inner: Arc::clone(inner),
            given: SmallVec::new(),
            verdicts: SmallVec::new(),
        }
    }

    fn start(&mut self, checks: &[Check]) -> Start {
        self.verdicts.clear();
        let inner = Arc::clone(&self.inner);
        let now = inner.shared.process_clock.now();
        let mut wait_for = None;
        let mut in_use = inner.shared.slots.lock();
        for (index, check) in leased(&inner, checks) {
            let quota = inner.rules.rules()[usize::from(check.rule())]
                .quota_under(usize::from(check.plan()));
            let limit = u32::try_from(quota.limit()).unwrap_or(u32::MAX);
            let verdict = |answer, source| Verdict::new(check.rule(), check.plan(), answer, source);
            let key = inner.encoder.slot_key(check, None);
            let (Some(key), Some(algorithm)) = (key, Concurrent::new(&quota)) else {
                continue;
            };
            let assess = |free: u32| {
                let mut state = ConcurrentState::default();
                algorithm.take(&mut state, 0, quota.limit().saturating_sub(u64::from(free)));
                algorithm.assess(&state, 0, check.cost())
            };
            let Some(slots) = u32::try_from(check.cost()).ok().filter(|it| *it <= limit) else {
                let denied = verdict(assess(limit), Source::Lease).of_slots();
                self.verdicts.push((index, denied));
                break;
            };
            if !in_use.leases.knows(&key) && !in_use.leases.has_room(1) {
                let failed = Verdict::unanswered(check.rule(), check.plan(), Outcome::Failed);
                self.verdicts.push((index, failed));
                continue;
            }
            let target = SlotTarget {
                encoder: Arc::clone(&inner.encoder),
                check: *check,
            };
            match in_use.leases.start(&key, target, (slots, limit), now) {
                LeasedStart::Started { number, free } => {
                    // A lease may be of a limit that was higher.
                    let free = u64::from(free).min(quota.limit().saturating_sub(check.cost()));
                    let answer = Assessment::new(true, free, 0, Retry::Now);
                    let given = verdict(answer, Source::Lease).with_slot_number(number);
                    self.verdicts.push((index, given));
                    self.given.push(Given { key, number, slots });
                }
                LeasedStart::Denied { free } => {
                    let denied = verdict(assess(free), Source::Lease).of_slots();
                    self.verdicts.push((index, denied));
                    break;
                }
                LeasedStart::Wait => {
                    wait_for = Some(key);
                    break;
                }
            }
        }
        let start = match wait_for {
            None => Start::Known,
            Some(key) => {
                let (outcome, reply) = oneshot::channel();
                let waiting = in_use.waiting.entry(key).or_default();
                // Those that have gone.
                if waiting.len() == waiting.capacity() {
                    waiting.retain(|it| !it.is_closed());
                }
                waiting.push(outcome);
                Start::Wait(reply)
            }
        };
        report(&inner.shared, in_use, now);
        if matches!(start, Start::Wait(_)) {
            // Others use them meanwhile.
            self.give_back();
        }
        start
    }

    /// The thread that waits may have no runtime, and so no timer.
    fn within<F: Future>(&self, by: Instant, reply: F) -> Timeout<F> {
        let _entered = self.inner.shared.runtime.enter();
        timeout_at(by, reply)
    }

    /// Redis could not be asked in time.
    fn fail(&mut self, checks: &[Check]) {
        self.give_back();
        let failed = leased(&self.inner, checks).map(|(index, check)| {
            let failed = Verdict::unanswered(check.rule(), check.plan(), Outcome::Failed);
            (index, failed)
        });
        self.verdicts = failed.collect();
    }

    /// Decides all else, and puts the decision together.
    fn decide(
        self,
        checks: Checks,
        decide: impl FnOnce(&[Check]) -> Step<Decision>,
    ) -> Step<Decision> {
        let is_denied = |(_, it): &(usize, Verdict)| it.outcome() == Outcome::Deny;
        let others: Checks = checks
            .iter()
            .enumerate()
            .filter(|(index, _)| self.verdicts.iter().all(|(leased, _)| leased != index))
            .map(|(_, check)| *check)
            .collect();
        if self.verdicts.iter().any(is_denied) || others.is_empty() {
            if others.is_empty() {
                self.inner.shared.observer.saved_call();
            }
            let at = self.inner.now();
            return Step::Ready(self.finish(&checks, at, None));
        }
        match decide(&others) {
            Step::Ready(decision) => {
                let at = decision.at();
                Step::Ready(self.finish(&checks, at, Some(&decision)))
            }
            Step::Wait(decision) => Step::Wait(Pending::new(async move {
                let decision = decision.await;
                let at = decision.at();
                self.finish(&checks, at, Some(&decision))
            })),
        }
    }

    /// The decision about all checks. `others`: about those that are not of slots on lease.
    fn finish(mut self, checks: &[Check], at: Tick, others: Option<&Decision>) -> Decision {
        let leased = self.verdicts.iter().map(|(_, verdict)| *verdict);
        self.inner
            .count_decided(&leased.collect::<SmallVec<[_; 2]>>());
        let is_denied = others.is_some_and(|it| it.outcome() == Outcome::Deny)
            || self
                .verdicts
                .iter()
                .any(|(_, it)| it.outcome() == Outcome::Deny);
        let mut others = others.map(Decision::verdicts).unwrap_or_default().iter();
        let verdicts = checks.iter().enumerate().map(|(index, check)| {
            let leased = self.verdicts.iter().find(|(leased, _)| *leased == index);
            match (leased, is_denied) {
                (Some((_, verdict)), false) => *verdict,
                // Nothing is held.
                (Some((_, verdict)), true) => verdict.of_slots(),
                (None, _) => others.next().copied().unwrap_or_else(|| {
                    Verdict::unanswered(check.rule(), check.plan(), Outcome::NotDecided)
                }),
            }
        });
        let verdicts: SmallVec<[Verdict; 4]> = verdicts.collect();
        let rules = &self.inner.rules;
        let decision = Decision::new(at, verdicts, |verdict| rules.enforces(verdict.rule()));
        if !is_denied {
            // The decision says what was granted, and its holder returns it.
            self.given.clear();
        }
        decision
    }

    fn give_back(&mut self) {
        if self.given.is_empty() {
            return;
        }
        let now = self.inner.shared.process_clock.now();
        let mut in_use = self.inner.shared.slots.lock();
        let mut keys = SmallVec::<[_; 1]>::new();
        for it in std::mem::take(&mut self.given) {
            let (rule, key) = (&it.key.rule, it.key.key);
            in_use.leases.end(rule, key, it.number, it.slots, now);
            keys.push(key);
        }
        report(&self.inner.shared, in_use, now);
        for key in keys {
            self.inner.shared.slots.waiters.wake(key);
        }
    }
}

impl Drop for LeasedSlots {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// The checks of slots on lease, with their indices.
fn leased<'a>(
    inner: &'a Inner,
    checks: &'a [Check],
) -> impl Iterator<Item = (usize, &'a Check)> + 'a {
    let checks = checks.iter().enumerate();
    checks.filter(|(_, check)| inner.leases_slots(check))
}
