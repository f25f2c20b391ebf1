//! The rule sets of a store.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tollgate_core::Rule;

use crate::store::inner::Inner;

/// The rule sets that are in use, or still report.
#[derive(Default)]
pub(super) struct InUse(Mutex<Vec<Weak<Inner>>>);

impl InUse {
    pub(super) fn add(&self, inner: &Arc<Inner>) {
        let mut all = self.lock();
        all.retain(|inner| inner.strong_count() > 0);
        all.push(Arc::downgrade(inner));
    }

    /// Each rule of each of them, as it was given.
    pub(super) fn each_rule(&self, mut each: impl FnMut(&Rule)) {
        for inner in self.all() {
            inner.rules.given().iter().for_each(&mut each);
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<Inner>> {
        self.lock().iter().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Inner>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
