//! One sample a second for all tabs, while there is one.

use std::{
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    runtime::Handle,
    sync::{Notify, watch},
    task::AbortHandle,
    time::{sleep, timeout},
};

use crate::{console::Shared, overview};

/// How many tabs there may be.
const MOST: usize = 64;
/// How long samples go on without a tab: one that is loaded again is not missed.
const LINGERS: u32 = 3;
const SECOND: u64 = 1_000_000;

/// The task, and the tabs that hear from it. A tab that reads slowly misses samples, and nobody waits for it.
#[derive(Debug)]
pub(crate) struct Sampler {
    latest: watch::Sender<Bytes>,
    wake: Arc<Notify>,
    is_idle: AtomicBool,
    task: OnceLock<AbortHandle>,
}

impl Sampler {
    pub(crate) fn new() -> Self {
        Self {
            latest: watch::Sender::new(Bytes::new()),
            wake: Arc::default(),
            is_idle: AtomicBool::new(true),
            task: OnceLock::new(),
        }
    }

    /// Begins, inside of a runtime. It ends with the router.
    pub(crate) fn start(shared: &Arc<Shared>) {
        if let Ok(runtime) = Handle::try_current() {
            let task = || runtime.spawn(run(Arc::downgrade(shared))).abort_handle();
            shared.sampler.task.get_or_init(task);
        }
    }

    /// Hears of the next samples. `None`: too many do.
    pub(crate) fn subscribe(&self) -> Option<watch::Receiver<Bytes>> {
        if self.latest.receiver_count() >= MOST {
            return None;
        }
        let receiver = self.latest.subscribe();
        if self.is_idle.swap(false, Ordering::AcqRel) {
            self.wake.notify_one();
        }
        Some(receiver)
    }
}

async fn run(shared: Weak<Shared>) {
    let mut lingers = 0_u32;
    loop {
        let Some(now) = shared.upgrade().map(|shared| shared.clock.now()) else {
            return;
        };
        if lingers > 0 {
            sleep(until_next(now, SECOND)).await;
        } else {
            // The sums of a minute are taken at its end.
            let Some(wake) = shared.upgrade().map(|shared| {
                shared.sampler.is_idle.store(true, Ordering::Release);
                Arc::clone(&shared.sampler.wake)
            }) else {
                return;
            };
            let is_viewed = |shared: Arc<Shared>| shared.sampler.latest.receiver_count() > 0;
            if !shared.upgrade().is_some_and(is_viewed) {
                let _ = timeout(until_next(now, 60 * SECOND), wake.notified()).await;
            }
        }
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let since = shared.take_sample();
        lingers = match shared.sampler.latest.receiver_count() {
            0 => lingers.saturating_sub(1),
            _ => LINGERS,
        };
        if lingers > 0 {
            let sample = overview::sample(&shared, since);
            shared
                .sampler
                .latest
                .send_replace(format!("data: {sample}\n\n").into());
        }
    }
}

/// How long until the clock shows a whole number of periods.
fn until_next(now: u64, period: u64) -> Duration {
    Duration::from_micros(period - now % period)
}

impl Drop for Sampler {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}
