//! Who waits in this process for slots, or for units that come back.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    sync::{
        Arc,
        atomic::{compiler_fence, fence},
    },
    task::{Poll, Waker},
};

use smallvec::SmallVec;

use crate::{
    key::Fingerprint,
    sync::{AtomicU64, Mutex, Ordering, lock},
};

/// Who waits in this process, whatever the store: a slot that comes back knows no more than its key. Stores have secrets of their own,
/// so no two have a key in common.
struct SlotWaiters {
    waiting: AtomicU64,
    by_key: Mutex<BTreeMap<Fingerprint, Vec<Arc<Signal>>>>,
}

impl SlotWaiters {
    const fn new() -> Self {
        Self {
            waiting: AtomicU64::new(0),
            by_key: Mutex::new(BTreeMap::new()),
        }
    }
}

#[cfg(not(tollgate_shuttle))]
static WAITERS: SlotWaiters = SlotWaiters::new();

#[cfg(tollgate_shuttle)]
shuttle::lazy_static! {
    static ref WAITERS: SlotWaiters = SlotWaiters::new();
}

/// Whether slots were released since, and what to wake then.
#[derive(Default)]
struct Signal(Mutex<(bool, Option<Waker>)>);

/// One that waits for slots of some keys. It sees each release from when it was made on.
pub(crate) struct SlotWaiter {
    keys: SmallVec<[Fingerprint; 2]>,
    signal: Arc<Signal>,
}

/// Wakes who waits in this process for slots of this key, or for units, where no request has to [ask
/// again](crate::store::RuleStore::asks_for_slots_every). To be called after they were returned.
pub fn wake(key: Fingerprint) {
    // Who waits says so before it looks: either sees what the other has written. To release a lock is no more than a store.
    fence(Ordering::SeqCst);
    wake_after_fence(key);
}

/// [`wake`] after a count of handles was written: by a locked instruction, which on x86 is a fence already.
pub(crate) fn wake_after_count(key: Fingerprint) {
    if cfg!(any(target_arch = "x86", target_arch = "x86_64")) {
        compiler_fence(Ordering::SeqCst);
        wake_after_fence(key);
    } else {
        wake(key);
    }
}

fn wake_after_fence(key: Fingerprint) {
    if WAITERS.waiting.load(Ordering::Relaxed) > 0 {
        wake_waiting(key);
    }
}

fn wake_waiting(key: Fingerprint) {
    let signals = lock(&WAITERS.by_key).get(&key).cloned().unwrap_or_default();
    for signal in signals {
        let mut state = lock(&signal.0);
        state.0 = true;
        let waker = state.1.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl SlotWaiter {
    /// To be made before the slots are looked for, so that no release is missed.
    pub(crate) fn new(keys: impl IntoIterator<Item = Fingerprint>) -> Self {
        let waiter = Self {
            keys: keys.into_iter().collect(),
            signal: Arc::default(),
        };
        WAITERS.waiting.fetch_add(1, Ordering::SeqCst);
        let mut by_key = lock(&WAITERS.by_key);
        for key in &waiter.keys {
            by_key
                .entry(*key)
                .or_default()
                .push(Arc::clone(&waiter.signal));
        }
        drop(by_key);
        fence(Ordering::SeqCst);
        waiter
    }

    /// Ends when slots were released since it was made.
    pub(crate) async fn released(&self) {
        poll_fn(|cx| {
            let mut state = lock(&self.signal.0);
            if state.0 {
                return Poll::Ready(());
            }
            state.1 = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for SlotWaiter {
    fn drop(&mut self) {
        let mut by_key = lock(&WAITERS.by_key);
        for key in &self.keys {
            if let Some(signals) = by_key.get_mut(key) {
                signals.retain(|signal| !Arc::ptr_eq(signal, &self.signal));
                if signals.is_empty() {
                    by_key.remove(key);
                }
            }
        }
        drop(by_key);
        WAITERS.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
