//! A store that can be slow, can fail, and counts its calls.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tollgate_core::{
    Check, Decision, Fingerprint, KeyBuf, MemoryStore, Outcome, Pending, RuleError, RuleSet, Step,
    Store, StoreError, Verdict,
    store::{Receipt, RuleRegistry, RuleStore, Settlement, Usage},
};

/// A memory store that answers late, or not at all.
#[derive(Clone, Debug)]
pub struct SlowStore {
    memory: MemoryStore,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    /// `None`: at once.
    delay: Option<Duration>,
    fails: AtomicBool,
    calls: AtomicU64,
}

impl SlowStore {
    /// Answers at once.
    #[must_use]
    pub fn at_once(memory: MemoryStore) -> Self {
        Self::with(memory, None)
    }

    /// Answers after `delay`; where that is nothing, after the other tasks had their turn.
    #[must_use]
    pub fn after(delay: Duration, memory: MemoryStore) -> Self {
        Self::with(memory, Some(delay))
    }

    fn with(memory: MemoryStore, delay: Option<Duration>) -> Self {
        Self {
            memory,
            state: Arc::new(State {
                delay,
                fails: AtomicBool::new(false),
                calls: AtomicU64::new(0),
            }),
        }
    }

    /// From now on it fails, or does not any more.
    pub fn fail(&self, fails: bool) {
        self.state.fails.store(fails, Ordering::SeqCst);
    }

    /// How often it was asked for units.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state.calls.load(Ordering::SeqCst)
    }
}

impl Store for SlowStore {
    fn bind(&self, rules: Arc<RuleSet>) -> Result<Arc<dyn RuleStore>, RuleError> {
        Ok(Arc::new(Bound {
            memory: self.memory.bind(rules)?,
            state: Arc::clone(&self.state),
        }))
    }

    fn registry(&self) -> &RuleRegistry {
        self.memory.registry()
    }
}

#[derive(Debug)]
struct Bound {
    memory: Arc<dyn RuleStore>,
    state: Arc<State>,
}

impl RuleStore for Bound {
    fn rules(&self) -> &Arc<RuleSet> {
        self.memory.rules()
    }

    fn fingerprint(&self, rule: u16, key: &KeyBuf) -> Fingerprint {
        self.memory.fingerprint(rule, key)
    }

    fn acquire(&self, checks: &[Check]) -> Step<Decision> {
        self.state.calls.fetch_add(1, Ordering::SeqCst);
        let answer = if self.state.fails.load(Ordering::SeqCst) {
            failed(self.rules(), checks)
        } else {
            self.memory
                .acquire(checks)
                .ready()
                .expect("memory answers at once")
        };
        match self.state.delay {
            None => Step::Ready(answer),
            Some(delay) => Step::Wait(Pending::new(async move {
                if delay.is_zero() {
                    tokio::task::yield_now().await;
                } else {
                    tokio::time::sleep(delay).await;
                }
                answer
            })),
        }
    }

    fn peek(&self, checks: &[Check]) -> Step<Decision> {
        self.memory.peek(checks)
    }

    fn settle(&self, receipts: &[Receipt], how: Settlement) {
        self.memory.settle(receipts, how);
    }

    fn reset(&self, checks: &[Check]) -> Step<Result<bool, StoreError>> {
        self.memory.reset(checks)
    }

    fn usage(&self, rule: u16) -> Option<Usage> {
        self.memory.usage(rule)
    }
}

fn failed(rules: &RuleSet, checks: &[Check]) -> Decision {
    let verdicts = checks
        .iter()
        .map(|check| Verdict::unanswered(check.rule(), check.plan(), Outcome::Failed));
    Decision::new(0, verdicts, |verdict| rules.enforces(verdict.rule()))
}
