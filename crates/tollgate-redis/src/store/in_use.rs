//! The rule sets of a store, and what becomes of them in the end.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::time::{sleep, timeout};
use tollgate_core::Rule;

use crate::store::{flusher, in_flight::send_alone, inner::Inner, shared::Shared};

/// How often a flush looks whether all slots that went back were reported.
const POLL_EVERY: Duration = Duration::from_millis(2);

/// The rule sets that are in use, or still report.
#[derive(Default)]
pub(super) struct InUse(Mutex<Vec<Weak<Inner>>>);

impl InUse {
    pub(super) fn add(&self, inner: &Arc<Inner>) {
        let mut all = self.all();
        all.retain(|inner| inner.strong_count() > 0);
        all.push(Arc::downgrade(inner));
    }

    /// Each rule of each of them, as it was given.
    pub(super) fn each_rule(&self, mut each: impl FnMut(&Rule)) {
        let all: Vec<_> = self.all().iter().filter_map(Weak::upgrade).collect();
        for inner in all {
            inner.rules.given().iter().for_each(&mut each);
        }
    }

    /// Sends all that Redis is to know, and waits for the answers. Gives the units that it may not know of.
    pub(super) async fn flush(&self, shared: &Arc<Shared>, within: Duration) -> u64 {
        let before = shared.engine.counts().units_lost;
        let all: Vec<_> = self.all().iter().filter_map(Weak::upgrade).collect();
        // All at once: some of them may be ending by themselves.
        for inner in &all {
            send_alone(inner, inner.local.flush(inner.now()));
        }
        let sent = async {
            for inner in &all {
                flusher::flush(inner).await;
            }
            while !shared.slots.is_reported() {
                sleep(POLL_EVERY).await;
            }
            shared.in_flight_calls.idle().await;
        };
        let _ = timeout(within, sent).await;
        // Units that are given up in between are rather counted twice than not at all.
        let now = shared.process_clock.now();
        let unreported = shared.engine.usage(now).units_unreported;
        unreported + (shared.engine.counts().units_lost - before)
    }

    fn all(&self) -> MutexGuard<'_, Vec<Weak<Inner>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
