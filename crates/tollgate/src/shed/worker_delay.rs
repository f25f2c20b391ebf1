//! How late tokio's workers poll a task that is ready.

use std::{
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{runtime::Handle, task::AbortHandle, time::Instant};

/// How often it is measured. A timer of tokio is late by up to a millisecond by itself.
const INTERVAL: Duration = Duration::from_millis(10);

/// The delay, measured by a task that ends with this value.
#[derive(Debug)]
pub(super) struct WorkerDelay {
    full: Duration,
    /// In microseconds: a mean that gives the newest measurement a quarter.
    micros: AtomicU64,
    task: Mutex<Option<AbortHandle>>,
}

impl WorkerDelay {
    pub(super) fn new(full: Duration) -> Self {
        Self {
            full,
            micros: AtomicU64::new(0),
            task: Mutex::new(None),
        }
    }

    /// The share of the delay that counts as full.
    pub(super) fn share(self: &Arc<Self>) -> f64 {
        // Its runtime may have ended. Without one, nothing is measured.
        if let Ok(mut task) = self.task.try_lock()
            && task.as_ref().is_none_or(AbortHandle::is_finished)
        {
            self.micros.store(0, Ordering::Relaxed);
            let measuring = |runtime: Handle| runtime.spawn(measure(Arc::downgrade(self)));
            *task = Handle::try_current()
                .ok()
                .map(|runtime| measuring(runtime).abort_handle());
        }
        self.delay().as_secs_f64() / self.full.as_secs_f64()
    }

    pub(super) fn delay(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::Relaxed))
    }
}

impl Drop for WorkerDelay {
    fn drop(&mut self) {
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task {
            task.abort();
        }
    }
}

async fn measure(delay: Weak<WorkerDelay>) {
    loop {
        let due = Instant::now() + INTERVAL;
        tokio::time::sleep_until(due).await;
        let late = due.elapsed().saturating_sub(Duration::from_millis(1));
        let Some(delay) = delay.upgrade() else { return };
        let late = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
        let before = delay.micros.load(Ordering::Relaxed);
        delay
            .micros
            .store(before - before / 4 + late / 4, Ordering::Relaxed);
    }
}
