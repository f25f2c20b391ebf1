//! A memory store with a switch.

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{task::yield_now, time::sleep};
use tollgate_core::{
    Check, Clock, Decision, KeyBuf, MemoryStore, Outcome, Pending, Rule, RuleError, RuleSet, Step,
    Store, StoreError, StoreErrorKind, Verdict,
    store::{ChargeFallback, Fingerprint, Hold, RuleRegistry, RuleStore, Settlement, Usage},
};

/// A [`MemoryStore`] that can be switched off, that can be slow, and that counts its calls.
///
/// Cheap to clone; clones share the state, the switch and the counter.
#[derive(Clone, Debug)]
pub struct SwitchedStore {
    memory: MemoryStore,
    /// `None`: it decides at once.
    delay: Option<Duration>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    off: AtomicBool,
    instances: AtomicU32,
    calls: AtomicU64,
}

impl SwitchedStore {
    /// A store that decides at once.
    #[must_use]
    pub fn at_once(memory: MemoryStore) -> Self {
        Self {
            memory,
            delay: None,
            shared: Arc::default(),
        }
    }

    /// A store that decides after `delay`. A delay of zero lets the other tasks of the runtime run first.
    #[must_use]
    pub fn after(delay: Duration, memory: MemoryStore) -> Self {
        Self {
            delay: Some(delay),
            ..Self::at_once(memory)
        }
    }

    /// Switches it on or off. While it is off, each call fails.
    pub fn switch(&self, on: bool) {
        self.shared.off.store(!on, SeqCst);
    }

    /// Sets the number of instances that it reports; at first 0: unknown.
    pub fn know(&self, instances: u32) {
        self.shared.instances.store(instances, SeqCst);
    }

    /// The number of requests for units so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.shared.calls.load(SeqCst)
    }

    fn is_off(&self) -> bool {
        self.shared.off.load(SeqCst)
    }
}

impl Store for SwitchedStore {
    fn bind(&self, rules: Arc<RuleSet>) -> Result<Arc<dyn RuleStore>, RuleError> {
        Ok(Arc::new(Bound {
            memory: self.memory.bind(rules)?,
            store: self.clone(),
            charge_fallback: Mutex::default(),
            lapsed: AtomicU64::new(0),
        }))
    }

    fn registry(&self) -> &RuleRegistry {
        self.memory.registry()
    }
}

struct Bound {
    memory: Arc<dyn RuleStore>,
    store: SwitchedStore,
    charge_fallback: Mutex<Option<ChargeFallback>>,
    /// What of charges had no room there.
    lapsed: AtomicU64,
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

impl Bound {
    fn decide(&self, checks: &[Check], patience: Option<Duration>) -> Step<Decision> {
        if self.store.is_off() {
            let failed = checks
                .iter()
                .map(|check| Verdict::unanswered(check.rule(), check.plan(), Outcome::Failed));
            let enforced = |verdict: &Verdict| self.rules().enforces(verdict.rule());
            return Step::Ready(Decision::new(0, failed, enforced));
        }
        match patience {
            Some(Duration::MAX) => self.memory.acquire(checks),
            Some(patience) => self.memory.acquire_within(checks, patience, &[]),
            None => self.memory.peek(checks),
        }
    }

    /// Decides for a request that waits for up to `patience`.
    fn take(&self, checks: &[Check], patience: Duration) -> Step<Decision> {
        self.store.shared.calls.fetch_add(1, SeqCst);
        let decision = self.decide(checks, Some(patience));
        let Some(delay) = self.store.delay else {
            return decision;
        };
        // The memory store and the switch answer at once. If the caller goes, its slots go back with it.
        let decision = decision.ready().expect("a decision");
        Step::Wait(Pending::new(async move {
            if delay.is_zero() {
                yield_now().await;
            } else {
                sleep(delay).await;
            }
            decision
        }))
    }
}

impl RuleStore for Bound {
    fn rules(&self) -> &Arc<RuleSet> {
        self.memory.rules()
    }

    fn clock(&self) -> Clock {
        self.memory.clock()
    }

    fn fingerprint(&self, rule: u16, key: &KeyBuf) -> Fingerprint {
        self.memory.fingerprint(rule, key)
    }

    fn acquire(&self, checks: &[Check]) -> Step<Decision> {
        self.take(checks, Duration::MAX)
    }

    fn acquire_within(
        &self,
        checks: &[Check],
        patience: Duration,
        _: &[(Check, u64)],
    ) -> Step<Decision> {
        self.take(checks, patience)
    }

    fn asks_for_slots_every(&self) -> Option<Duration> {
        self.memory.asks_for_slots_every()
    }

    fn peek(&self, checks: &[Check]) -> Step<Decision> {
        self.decide(checks, None)
    }

    fn settle(&self, receipts: &[Hold], how: Settlement) {
        if !self.store.is_off() {
            return self.memory.settle(receipts, how);
        }
        let fallback = self
            .charge_fallback
            .lock()
            .expect("no thread panics")
            .clone();
        if let (Settlement::Charge(units), Some(charge)) = (how, fallback) {
            for hold in receipts.iter().filter(|hold| hold.check.cost() > 0) {
                self.lapsed.fetch_add(charge(&hold.check, units), SeqCst);
            }
        }
    }

    fn set_charge_fallback(&self, charge: ChargeFallback) {
        *self.charge_fallback.lock().expect("no thread panics") = Some(charge);
    }

    fn reset(&self, checks: &[Check]) -> Step<Result<bool, StoreError>> {
        if self.store.is_off() {
            let (kind, text) = (StoreErrorKind::Unavailable, "the store is switched off");
            return Step::Ready(Err(StoreError::new(kind, text)));
        }
        self.memory.reset(checks)
    }

    fn supports(&self, rule: &Rule) -> bool {
        !rule.has_credits()
    }

    fn releases_slots(&self) -> bool {
        self.memory.releases_slots()
    }

    fn instances(&self) -> u32 {
        self.store.shared.instances.load(SeqCst)
    }

    fn usage(&self, rule: u16) -> Option<Usage> {
        self.memory.usage(rule)
    }

    fn usage_counters(&self, rule: u16) -> Option<Usage> {
        self.memory.usage_counters(rule)
    }

    fn lapsed_units(&self, rule: u16) -> u64 {
        self.memory.lapsed_units(rule) + self.lapsed.load(SeqCst)
    }
}
