//! The key look-ups of a request: concurrent, under one deadline.

use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
    thread,
    time::Duration,
};

use tokio::{runtime::Handle, time::timeout};
use tollgate_core::{KeyBuf, Pending};

use crate::key::extractor::NoKey;

/// The default deadline for the look-ups of a request.
pub(crate) const DEADLINE: Duration = Duration::from_millis(200);

/// A key, or why there is none.
pub(crate) type Found = Result<KeyBuf, NoKey>;

/// Look-ups with the indices of their checks. Most requests have none, and nothing of this.
#[derive(Debug, Default)]
pub(crate) struct LookUps(Vec<LookUp>);

#[derive(Debug)]
struct LookUp {
    index: usize,
    /// `None`: it has finished.
    running: Option<Pending<Found>>,
    found: Found,
}

impl LookUps {
    /// Adds a look-up, without polling it.
    pub(crate) fn push(&mut self, index: usize, look_up: Pending<Found>) {
        self.0.push(LookUp {
            index,
            running: Some(look_up),
            // Unless it finishes in time.
            found: Err(NoKey::LookUpFailed),
        });
    }

    /// Whether the key of the check at this index is looked up.
    pub(crate) fn has(&self, index: usize) -> bool {
        self.0.iter().any(|look_up| look_up.index == index)
    }

    /// The results, in the order in which the look-ups were added. Those that have not finished by the deadline are dropped and
    /// have failed.
    ///
    /// The deadline begins when a look-up is pending. Outside of a tokio runtime there is none. In a runtime built without
    /// `enable_time`, a pending look-up fails at once.
    pub(crate) async fn within(mut self, deadline: Duration) -> Vec<(usize, Found)> {
        let all = poll_fn(|cx| Poll::Ready(self.poll_all(cx).is_ready())).await;
        if !all {
            let later = poll_fn(|cx| self.poll_all(cx));
            if Handle::try_current().is_err() {
                later.await;
            } else if let Ok(within) = with_timer(|| timeout(deadline, later)) {
                // Those that have not finished have failed.
                let _ = within.await;
            }
        }
        self.0.into_iter().map(|it| (it.index, it.found)).collect()
    }

    /// The results, when all have finished, or those up to the first without a key.
    pub(crate) async fn of_one_key(mut self) -> impl Iterator<Item = (usize, Found)> {
        poll_fn(|cx| {
            let all = self.poll_all(cx);
            let mut first = self.0.iter().skip_while(|it| it.found.is_ok());
            match first.next() {
                Some(missing) if missing.running.is_none() => Poll::Ready(()),
                _ => all,
            }
        })
        .await;
        self.0.into_iter().map(|it| (it.index, it.found))
    }

    /// Ready when all have finished.
    fn poll_all(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut all = Poll::Ready(());
        for look_up in &mut self.0 {
            let Some(running) = &mut look_up.running else {
                continue;
            };
            match Pin::new(running).poll(cx) {
                Poll::Ready(found) => (look_up.running, look_up.found) = (None, found),
                Poll::Pending => all = Poll::Pending,
            }
        }
        all
    }
}

/// `start`, or `Err` if the runtime has no timer, which tokio reports only by a panic.
pub(crate) fn with_timer<T>(start: impl FnOnce() -> T) -> thread::Result<T> {
    // A timer that does not start leaves no state behind.
    catch_unwind(AssertUnwindSafe(start))
}
