//! Publishing what was counted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::observe::rule_observer::RuleObserver;

/// The rules of this process that were used.
static USED: Mutex<Vec<Weak<RuleObserver>>> = Mutex::new(Vec::new());

/// Brings the counters of all limiters and layers of this process up to date: call it before you render metrics.
///
/// Each thread counts for itself, so that counting is not what the processors wait for, and a request adds the counts to the
/// recorder's counters once in a second. Without a request they stand still, and what was counted last is added by this call,
/// or when its rule is dropped. A series is published with its first request.
///
/// ```
/// # use tollgate_core::{Key, Limiter, MINUTE, MemoryStore, Quota, Rule};
/// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("api", Quota::gcra(60, MINUTE))])?;
/// for _ in 0..10 {
///     let _ = limiter.try_acquire("api", &Key::of("account-7"))?;
/// }
/// tollgate_core::observe::flush_metrics();
/// // Now the recorder has `tollgate_requests_total{rule="api",decision="allowed",…} 10`.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn flush_metrics() {
    let used: Vec<Arc<RuleObserver>> = {
        let mut used = lock();
        used.retain(|rule| rule.strong_count() > 0);
        used.iter().filter_map(Weak::upgrade).collect()
    };
    for rule in used {
        rule.flush();
    }
}

/// A rule is used.
pub(super) fn register(rule: &Arc<RuleObserver>) {
    let mut used = lock();
    // Those that are gone are forgotten before there are twice as many.
    if used.len() == used.capacity() {
        used.retain(|rule| rule.strong_count() > 0);
    }
    used.push(Arc::downgrade(rule));
}

fn lock() -> MutexGuard<'static, Vec<Weak<RuleObserver>>> {
    USED.lock().unwrap_or_else(PoisonError::into_inner)
}
