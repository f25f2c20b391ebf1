//! A memory store behind a slow, failing network.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{sleep, timeout};
use tollgate_core::{
    Check, Decision, KeyBuf, MemoryStore, Outcome, Pending, Rule, RuleError, RuleSet, Step, Store,
    StoreError, StoreErrorKind, Verdict,
    store::{
        Checks, Fingerprint, HeldSlots, Hold, Holds, ReservationStore, Reserved, RuleRegistry,
        RuleStore, Settlement, Usage,
    },
    types::Reservation,
};

/// What the network does to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The call fails before it runs: a refused connection.
    Refused,
    /// The call runs and its answer is lost: whether it ran is not known.
    Lost,
    /// The call runs and no answer ever comes: the deadline ends the wait.
    Silent,
}

/// A [`MemoryStore`] that has to be waited for, and that fails on demand.
///
/// Cheap to clone; clones share state, faults and counters. It wants a tokio runtime with a timer.
#[derive(Clone, Debug)]
pub struct RemoteStore {
    memory: MemoryStore,
    partitioned: bool,
    network: Network,
    counters: Arc<Counters>,
}

#[derive(Clone)]
struct Network {
    delay: Duration,
    deadline: Duration,
    faults: Arc<dyn Fn(u64) -> Option<Fault> + Send + Sync>,
}

#[derive(Debug, Default)]
struct Counters {
    calls: AtomicU64,
    settlements: AtomicU64,
}

impl RemoteStore {
    /// A store that answers after 1 ms, with a deadline of 50 ms and no fault.
    #[must_use]
    pub fn new(memory: MemoryStore) -> Self {
        Self {
            memory,
            partitioned: false,
            network: Network {
                delay: Duration::from_millis(1),
                deadline: Duration::from_millis(50),
                faults: Arc::new(|_| None),
            },
            counters: Arc::default(),
        }
    }

    /// How long a call takes; it runs after half of it.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.network.delay = delay;
        self
    }

    /// How long an answer is waited for.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.network.deadline = deadline;
        self
    }

    /// What happens to the call with this number, counted from 1 over all calls but settlements.
    #[must_use]
    pub fn faults(mut self, faults: impl Fn(u64) -> Option<Fault> + Send + Sync + 'static) -> Self {
        self.network.faults = Arc::new(faults);
        self
    }

    /// Puts each rule into a partition of its own: one call for each, in the order of the checks, so that some of a
    /// request's checks fail and others do not. What was taken is given back when a later call is known to deny.
    #[must_use]
    pub fn partitioned(mut self) -> Self {
        self.partitioned = true;
        self
    }

    /// The calls so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.counters.calls.load(Ordering::Relaxed)
    }

    /// The settlements so far.
    #[must_use]
    pub fn settlements(&self) -> u64 {
        self.counters.settlements.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network")
            .field("delay", &self.delay)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl Store for RemoteStore {
    fn bind(&self, rules: Arc<RuleSet>) -> Result<Arc<dyn RuleStore>, RuleError> {
        Ok(Arc::new(BoundRemote {
            memory: self.memory.bind(rules)?,
            remote: self.clone(),
        }))
    }

    fn registry(&self) -> &RuleRegistry {
        self.memory.registry()
    }
}

#[derive(Clone, Debug)]
struct BoundRemote {
    memory: Arc<dyn RuleStore>,
    remote: RemoteStore,
}

impl BoundRemote {
    /// Runs `command` on the other side.
    async fn call<T>(
        &self,
        command: impl FnOnce(&dyn RuleStore) -> Step<T>,
    ) -> Result<T, StoreErrorKind> {
        let Network {
            delay,
            deadline,
            faults,
        } = &self.remote.network;
        let fault = faults(self.remote.counters.calls.fetch_add(1, Ordering::Relaxed) + 1);
        let answer = async {
            if fault == Some(Fault::Refused) {
                return Err(StoreErrorKind::Unavailable);
            }
            sleep(*delay / 2).await;
            let answer = command(&*self.memory).await;
            sleep(*delay - *delay / 2).await;
            match fault {
                Some(Fault::Lost) => Err(StoreErrorKind::Timeout),
                Some(Fault::Silent) => pending().await,
                Some(Fault::Refused) | None => Ok(answer),
            }
        };
        timeout(*deadline, answer)
            .await
            .unwrap_or(Err(StoreErrorKind::Timeout))
    }

    fn about_reservation<T: Send + 'static>(
        &self,
        command: impl FnOnce(&dyn ReservationStore) -> Step<Result<T, StoreError>> + Send + 'static,
    ) -> Step<Result<T, StoreError>> {
        let bound = self.clone();
        Step::Wait(Pending::new(async move {
            let answer =
                bound.call(|memory| command(memory.reservations().expect("memory keeps them")));
            match answer.await {
                Ok(answer) => answer,
                Err(kind) => Err(StoreError::new(kind, "the network failed on demand")),
            }
        }))
    }

    /// The partition of a check. Rules that read each other's verdict or state are in one.
    fn partition(&self, check: &Check) -> usize {
        let rule = usize::from(check.rule());
        if self.remote.partitioned {
            self.rules().refers_to(rule).unwrap_or(rule)
        } else {
            0
        }
    }

    async fn decide(&self, checks: &[Check], take: bool) -> Decision {
        let unanswered =
            |outcome| move |check: &Check| Verdict::unanswered(check.rule(), check.plan(), outcome);
        let mut verdicts: Vec<_> = checks.iter().map(unanswered(Outcome::NotDecided)).collect();
        let mut at = 0;
        let mut taken: Vec<(Checks, Decision)> = Vec::new();
        let mut partitions: Vec<_> = checks.iter().map(|check| self.partition(check)).collect();
        partitions.dedup();
        for (index, partition) in partitions.iter().enumerate() {
            if partitions[..index].contains(partition) {
                continue;
            }
            let sent: Checks = checks
                .iter()
                .filter(|check| self.partition(check) == *partition)
                .copied()
                .collect();
            let answer = self
                .call(|memory| {
                    if take {
                        memory.acquire(&sent)
                    } else {
                        memory.peek(&sent)
                    }
                })
                .await;
            let mut answers = match &answer {
                Ok(decision) => decision.verdicts().to_vec(),
                Err(_) => sent.iter().map(unanswered(Outcome::Failed)).collect(),
            }
            .into_iter();
            for (verdict, check) in verdicts.iter_mut().zip(checks) {
                if self.partition(check) == *partition {
                    *verdict = answers.next().unwrap_or(*verdict);
                }
            }
            let Ok(decision) = answer else { continue };
            at = decision.at();
            if !decision.is_allowed() {
                break;
            }
            taken.push((sent, decision));
        }
        let mut decision = Decision::new(at, verdicts, |verdict| {
            self.rules().enforces(verdict.rule())
        });
        if take && decision.outcome() == Outcome::Deny {
            for (checks, decision) in &taken {
                self.settle(&self.receipts(checks, decision), Settlement::Cancel);
            }
        } else {
            let slots = taken.iter().map(|(_, part)| part.take_slots());
            decision.set_slots(slots.fold(None, HeldSlots::both));
        }
        decision
    }

    /// What an allowed part of a request took.
    fn receipts(&self, checks: &[Check], decision: &Decision) -> Vec<Hold> {
        let verdicts = decision.verdicts().iter();
        let answered = checks.iter().zip(verdicts).filter(|(check, verdict)| {
            let took = check.cost() > 0 && verdict.outcome() == Outcome::Allow;
            let is_held = verdict.is_of_slots();
            took && !is_held && self.rules().enforces(verdict.rule())
        });
        answered
            .map(|(check, verdict)| verdict.hold(*check, decision.at()))
            .collect()
    }
}

impl RuleStore for BoundRemote {
    fn rules(&self) -> &Arc<RuleSet> {
        self.memory.rules()
    }

    fn fingerprint(&self, rule: u16, key: &KeyBuf) -> Fingerprint {
        self.memory.fingerprint(rule, key)
    }

    fn acquire(&self, checks: &[Check]) -> Step<Decision> {
        let (bound, checks) = (self.clone(), Checks::from_slice(checks));
        Step::Wait(Pending::new(
            async move { bound.decide(&checks, true).await },
        ))
    }

    fn peek(&self, checks: &[Check]) -> Step<Decision> {
        let (bound, checks) = (self.clone(), Checks::from_slice(checks));
        Step::Wait(Pending::new(
            async move { bound.decide(&checks, false).await },
        ))
    }

    fn settle(&self, receipts: &[Hold], how: Settlement) {
        if !receipts.is_empty() {
            self.remote
                .counters
                .settlements
                .fetch_add(1, Ordering::Relaxed);
            self.memory.settle(receipts, how);
        }
    }

    fn reset(&self, checks: &[Check]) -> Step<Result<bool, StoreError>> {
        let (bound, checks) = (self.clone(), Checks::from_slice(checks));
        Step::Wait(Pending::new(async move {
            match bound.call(|memory| memory.reset(&checks)).await {
                Ok(answer) => answer,
                Err(kind) => Err(StoreError::new(kind, "the network failed on demand")),
            }
        }))
    }

    fn reservations(&self) -> Option<&dyn ReservationStore> {
        Some(self)
    }

    fn supports(&self, rule: &Rule) -> bool {
        !rule.has_credits() && (rule.has_slots() || rule.at_most_wait().is_none())
    }

    fn releases_slots(&self) -> bool {
        self.memory.releases_slots()
    }

    fn usage(&self, rule: u16) -> Option<Usage> {
        self.memory.usage(rule)
    }

    fn usage_counters(&self, rule: u16) -> Option<Usage> {
        self.memory.usage_counters(rule)
    }

    fn lapsed_units(&self, rule: u16) -> u64 {
        self.memory.lapsed_units(rule)
    }
}

impl ReservationStore for BoundRemote {
    fn reserve(&self, reserved: Reserved, term: Duration) -> Step<Result<Reservation, StoreError>> {
        self.about_reservation(move |memory| memory.reserve(reserved, term))
    }

    fn reserved(&self, text: &Reservation) -> Result<Reserved, StoreError> {
        let memory = self.memory.reservations();
        memory.expect("memory keeps them").reserved(text)
    }

    fn redeem(
        &self,
        reserved: &Reserved,
        settlements: &[(Holds, Settlement)],
    ) -> Step<Result<(), StoreError>> {
        let (reserved, settlements) = (reserved.clone(), settlements.to_vec());
        self.about_reservation(move |memory| memory.redeem(&reserved, &settlements))
    }

    fn extend(&self, reserved: &Reserved, term: Duration) -> Step<Result<(), StoreError>> {
        let reserved = reserved.clone();
        self.about_reservation(move |memory| memory.extend(&reserved, term))
    }
}
