//! The time of a wait: of a task, or of a thread.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

/// The time since an acquire began to wait.
pub(crate) trait Timer {
    fn elapsed(&self) -> Duration;

    /// Ends when so much time has elapsed.
    fn sleep_until(&self, elapsed: Duration) -> impl Future<Output = ()>;
}

impl<T: Timer> Timer for &T {
    fn elapsed(&self) -> Duration {
        (**self).elapsed()
    }

    async fn sleep_until(&self, elapsed: Duration) {
        (**self).sleep_until(elapsed).await;
    }
}

/// The timer of a task, by the time of its tokio runtime.
#[cfg(feature = "tokio")]
pub(crate) struct TaskTimer(tokio::time::Instant);

#[cfg(feature = "tokio")]
impl TaskTimer {
    pub(crate) fn start() -> Self {
        Self(tokio::time::Instant::now())
    }
}

#[cfg(feature = "tokio")]
impl Timer for TaskTimer {
    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    async fn sleep_until(&self, elapsed: Duration) {
        tokio::time::sleep(elapsed.saturating_sub(self.elapsed())).await;
    }
}

/// The timer of a blocking call: it parks its thread until the next poll is due.
pub(crate) struct ThreadTimer {
    start: Instant,
    /// When the future that is polled wants to be polled again.
    wake_at: Cell<Option<Duration>>,
}

impl ThreadTimer {
    #[expect(
        clippy::disallowed_methods,
        reason = "a thread is blocked for real time, whatever clock the store has"
    )]
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            wake_at: Cell::new(None),
        }
    }

    /// Waits for a future that sleeps by this timer, for no longer than this.
    pub(crate) fn block_on<T>(
        &self,
        future: impl Future<Output = T>,
        longest: Duration,
    ) -> Option<T> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Some(output);
            }
            let left = longest
                .checked_sub(self.elapsed())
                .filter(|left| !left.is_zero())?;
            let wake_at = self.wake_at.take();
            let sleep = wake_at.map_or(left, |at| at.saturating_sub(self.elapsed()));
            thread::park_timeout(sleep.min(left));
        }
    }
}

impl Timer for ThreadTimer {
    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    async fn sleep_until(&self, elapsed: Duration) {
        poll_fn(|_| {
            if self.elapsed() >= elapsed {
                return Poll::Ready(());
            }
            // Several may sleep at once: the first to wake is polled with the others.
            let wake_at = self.wake_at.get().map_or(elapsed, |at| at.min(elapsed));
            self.wake_at.set(Some(wake_at));
            Poll::Pending
        })
        .await;
    }
}

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
