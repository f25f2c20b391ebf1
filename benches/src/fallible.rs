//! A store that could fail and does not: what a limiter adds to the answers of a remote store.

use std::sync::Arc;

use tollgate_core::{
    Check, Decision, KeyBuf, MemoryStore, RuleError, RuleSet, Step, Store, StoreError,
    store::{Fingerprint, Hold, RuleRegistry, RuleStore, Settlement},
};

/// A memory store that says of itself that it can fail.
#[derive(Clone, Debug, Default)]
pub struct FallibleStore(MemoryStore);

#[derive(Debug)]
struct Bound(Arc<dyn RuleStore>);

impl Store for FallibleStore {
    fn bind(&self, rules: Arc<RuleSet>) -> Result<Arc<dyn RuleStore>, RuleError> {
        Ok(Arc::new(Bound(self.0.bind(rules)?)))
    }

    fn registry(&self) -> &RuleRegistry {
        self.0.registry()
    }
}

impl RuleStore for Bound {
    fn rules(&self) -> &Arc<RuleSet> {
        self.0.rules()
    }

    fn fingerprint(&self, rule: u16, key: &KeyBuf) -> Fingerprint {
        self.0.fingerprint(rule, key)
    }

    fn acquire(&self, checks: &[Check]) -> Step<Decision> {
        self.0.acquire(checks)
    }

    fn peek(&self, checks: &[Check]) -> Step<Decision> {
        self.0.peek(checks)
    }

    fn settle(&self, holdings: &[Hold], how: Settlement) {
        self.0.settle(holdings, how);
    }

    fn reset(&self, checks: &[Check]) -> Step<Result<bool, StoreError>> {
        self.0.reset(checks)
    }
}
