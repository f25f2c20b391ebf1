//! A store that can be switched off, and that knows how many instances share it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
};

use tollgate_core::{
    Check, Decision, Fingerprint, KeyBuf, MemoryStore, Outcome, RuleError, RuleSet, Step, Store,
    StoreError, StoreErrorKind, Verdict,
    store::{Receipt, RuleRegistry, RuleStore, Settlement},
};

/// A memory store that answers at once, or fails at once. Clones share the switch.
#[derive(Clone, Debug)]
pub(crate) struct Switched {
    memory: MemoryStore,
    off: Arc<AtomicBool>,
    instances: Arc<AtomicU32>,
}

#[derive(Debug)]
struct Bound {
    memory: Arc<dyn RuleStore>,
    store: Switched,
}

impl Switched {
    pub(crate) fn new(memory: MemoryStore) -> Self {
        Self {
            memory,
            off: Arc::default(),
            instances: Arc::default(),
        }
    }

    pub(crate) fn switch(&self, on: bool) {
        self.off.store(!on, SeqCst);
    }

    /// What it knows from now on of the instances that share it.
    pub(crate) fn know(&self, instances: u32) {
        self.instances.store(instances, SeqCst);
    }

    fn is_off(&self) -> bool {
        self.off.load(SeqCst)
    }
}

impl Store for Switched {
    fn bind(&self, rules: Arc<RuleSet>) -> Result<Arc<dyn RuleStore>, RuleError> {
        Ok(Arc::new(Bound {
            memory: self.memory.bind(rules)?,
            store: self.clone(),
        }))
    }

    fn registry(&self) -> &RuleRegistry {
        self.memory.registry()
    }
}

impl Bound {
    fn failed(checks: &[Check]) -> Step<Decision> {
        let failed = checks
            .iter()
            .map(|check| Verdict::unanswered(check.rule(), check.plan(), Outcome::Failed));
        Step::Ready(Decision::new(0, failed, |_| true))
    }
}

impl RuleStore for Bound {
    fn rules(&self) -> &Arc<RuleSet> {
        self.memory.rules()
    }

    fn fingerprint(&self, rule: u16, key: &KeyBuf) -> Fingerprint {
        self.memory.fingerprint(rule, key)
    }

    fn acquire(&self, checks: &[Check]) -> Step<Decision> {
        if self.store.is_off() {
            return Self::failed(checks);
        }
        self.memory.acquire(checks)
    }

    fn peek(&self, checks: &[Check]) -> Step<Decision> {
        if self.store.is_off() {
            return Self::failed(checks);
        }
        self.memory.peek(checks)
    }

    fn settle(&self, receipts: &[Receipt], how: Settlement) {
        if !self.store.is_off() {
            self.memory.settle(receipts, how);
        }
    }

    fn reset(&self, checks: &[Check]) -> Step<Result<bool, StoreError>> {
        if self.store.is_off() {
            return Step::Ready(Err(StoreError::new(
                StoreErrorKind::Unavailable,
                "it is switched off",
            )));
        }
        self.memory.reset(checks)
    }

    fn instances(&self) -> u32 {
        self.store.instances.load(SeqCst)
    }
}
