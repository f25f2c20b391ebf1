//! Publishing what was counted.

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    thread::{self, Thread},
    time::Duration,
};

/// What has counts to publish.
pub(super) trait Flush: Send + Sync {
    /// Publishes what was counted.
    fn flush(&self);
}

/// The rules of this process that were used.
static USED: Mutex<Vec<Weak<dyn Flush>>> = Mutex::new(Vec::new());

/// How far the metrics of a busy rule may be behind.
const LAG: Duration = Duration::from_millis(50);

/// Brings the counters of all limiters and layers of this process up to date. Call it before you render metrics, where they have
/// to be exact under load.
///
/// Without it they are at most some 50 ms behind. The first requests of a rule add to the recorder's counters themselves; where
/// there are more than a thousand in a second, each thread counts for itself, so that counting is not what the processors wait
/// for, and a thread in the background adds these counts every 50 ms. It starts when it is first needed, and sleeps without load.
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
    let used: Vec<Arc<dyn Flush>> = {
        let mut used = lock();
        used.retain(|rule| rule.strong_count() > 0);
        used.iter().filter_map(Weak::upgrade).collect()
    };
    for rule in used {
        rule.flush();
    }
}

/// Flushes within [`LAG`], in the background.
#[cold]
pub(super) fn flush_soon() {
    static FLUSHER: OnceLock<Option<Thread>> = OnceLock::new();
    let flusher = FLUSHER.get_or_init(|| {
        let thread = thread::Builder::new().name("tollgate-metrics".to_owned());
        let started = thread.spawn(|| {
            loop {
                // A call to wake up that came during the pause is not lost: the next one ends at once.
                thread::park();
                pause();
                flush_metrics();
            }
        });
        Some(started.ok()?.thread().clone())
    });
    // Where no thread can be started, requests bring the metrics up to date once a second.
    if let Some(flusher) = flusher {
        flusher.unpark();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "on a thread that does nothing else"
)]
fn pause() {
    thread::sleep(LAG);
}

/// A rule is used.
pub(super) fn register(rule: Weak<dyn Flush>) {
    let mut used = lock();
    // Those that are gone are forgotten before there are twice as many.
    if used.len() == used.capacity() {
        used.retain(|rule| rule.strong_count() > 0);
    }
    used.push(rule);
}

fn lock() -> MutexGuard<'static, Vec<Weak<dyn Flush>>> {
    USED.lock().unwrap_or_else(PoisonError::into_inner)
}
