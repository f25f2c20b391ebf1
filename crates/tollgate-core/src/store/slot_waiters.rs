//! Who waits in this process for slots, or for units that come back.

use std::{
    collections::HashMap,
    fmt,
    future::poll_fn,
    sync::Arc,
    task::{Poll, Waker},
    time::Duration,
};

use smallvec::SmallVec;

use crate::{
    key::Fingerprint,
    sync::{AtomicU64, Mutex, Ordering, lock},
};

/// Who waits in this process for slots: woken when a request with slots of the same key ends. A store that has it wakes it after
/// each release. Where no request has to [ask again](Self::polled), who waits for units is woken too, when some come back before
/// they refill.
#[derive(Default)]
pub struct SlotWaiters {
    waiting: AtomicU64,
    by_key: Mutex<HashMap<Fingerprint, Vec<Arc<Signal>>>>,
    /// How often who waits looks by itself.
    poll_every: Option<Duration>,
    /// The slots that end by themselves at some time, which wakes nobody.
    pub(crate) with_term: AtomicU64,
}

/// How often who waits looks by itself while slots end by themselves.
const POLL_TERMS: Duration = Duration::from_millis(100);

/// Whether slots were released since, and what to wake then.
#[derive(Default)]
struct Signal(Mutex<(bool, Option<Waker>)>);

/// One that waits for slots of some keys. It sees each release from when it was made on.
pub(crate) struct SlotWaiter<'a> {
    waiters: &'a SlotWaiters,
    keys: SmallVec<[Fingerprint; 2]>,
    signal: Arc<Signal>,
}

impl SlotWaiters {
    /// Those of a store where other processes return slots too, without a notice: the first in the queue asks again at this interval.
    #[must_use]
    pub fn polled(every: Duration) -> Self {
        Self {
            poll_every: Some(every),
            ..Self::default()
        }
    }

    pub(crate) fn poll_every(&self) -> Option<Duration> {
        let has_terms = || self.with_term.load(Ordering::Relaxed) > 0;
        (self.poll_every).or_else(|| has_terms().then_some(POLL_TERMS))
    }

    /// Wakes who waits for slots or units of this key. To be called after they were returned.
    pub fn wake(&self, key: Fingerprint) {
        // Who waits has said so before it looked for a slot, under the lock that was just held for the release.
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.wake_waiting(key);
        }
    }

    fn wake_waiting(&self, key: Fingerprint) {
        let signals = lock(&self.by_key).get(&key).cloned().unwrap_or_default();
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

    pub(crate) fn wait(&self, keys: impl IntoIterator<Item = Fingerprint>) -> SlotWaiter<'_> {
        let waiter = SlotWaiter {
            waiters: self,
            keys: keys.into_iter().collect(),
            signal: Arc::default(),
        };
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut by_key = lock(&self.by_key);
        for key in &waiter.keys {
            by_key
                .entry(*key)
                .or_default()
                .push(Arc::clone(&waiter.signal));
        }
        drop(by_key);
        waiter
    }
}

impl SlotWaiter<'_> {
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

impl Drop for SlotWaiter<'_> {
    fn drop(&mut self) {
        let mut by_key = lock(&self.waiters.by_key);
        for key in &self.keys {
            if let Some(signals) = by_key.get_mut(key) {
                signals.retain(|signal| !Arc::ptr_eq(signal, &self.signal));
                if signals.is_empty() {
                    by_key.remove(key);
                }
            }
        }
        drop(by_key);
        self.waiters.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for SlotWaiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.waiting.load(Ordering::Relaxed);
        write!(f, "SlotWaiters({waiting})")
    }
}
