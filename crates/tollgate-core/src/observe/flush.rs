//! All that the process has counted, for the recorder of the application.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::{observe::observer::Observer, store::rule_store::RuleStore};

/// The observer of a limiter, and the store of its rules.
type Observed = (Weak<Observer>, Weak<dyn RuleStore>);

/// Those of all limiters of this process.
static LIVE: Mutex<Vec<Observed>> = Mutex::new(Vec::new());

/// Brings the counters of all limiters and layers of this process up to date. Call it before you render metrics, where they have
/// to be exact.
///
/// A request hands its numbers to the recorder itself, unless its rule has many in a millisecond: then it leaves them to the
/// next ones, at most 63 of each series and processor. What a store counts, such as new keys and states that it has evicted, is
/// handed over by the first request of a second. Where no request follows, they are missing until then.
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
    let upgrade = |(observer, store): &Observed| (observer.upgrade(), store.upgrade());
    let live: Vec<_> = LIVE.lock().iter().map(upgrade).collect();
    for limiter in live {
        if let (Some(observer), Some(store)) = limiter {
            observer.flush(&*store);
        }
    }
}

/// The observer of a new limiter.
pub(crate) fn register(observer: &Arc<Observer>, store: &Arc<dyn RuleStore>) {
    let mut live = LIVE.lock();
    // Those that are gone are forgotten before there are twice as many.
    if live.len() == live.capacity() {
        live.retain(|(observer, _)| observer.strong_count() > 0);
    }
    live.push((Arc::downgrade(observer), Arc::downgrade(store)));
}
