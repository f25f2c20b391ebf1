//! The key look-ups of a request: concurrent, under one deadline.

use std::{
    future::{Future, poll_fn},
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
pub(crate) struct LookUps(Vec<(usize, LookUp)>);

#[derive(Debug)]
enum LookUp {
    Running(Pending<Found>),
    Done(Found),
}

impl LookUps {
    /// Adds a look-up, without polling it.
    pub(crate) fn push(&mut self, index: usize, look_up: Pending<Found>) {
        self.0.push((index, LookUp::Running(look_up)));
    }

    /// Whether the key of the check at this index is looked up.
    pub(crate) fn has(&self, index: usize) -> bool {
        self.0.iter().any(|(of, _)| *of == index)
    }

    /// The results, in the order in which the look-ups were added. Those that have not finished by the deadline are dropped and
    /// have failed.
    ///
    /// The deadline begins when a look-up is pending. Outside of a tokio runtime there is none. In a runtime built without
    /// `enable_time`, a pending look-up fails at once.
    pub(crate) async fn within(mut self, deadline: Duration) -> Vec<(usize, Found)> {
        let all = poll_fn(|cx| Poll::Ready(Pin::new(&mut self).poll(cx).is_ready())).await;
        if !all {
            if Handle::try_current().is_err() {
                (&mut self).await;
            } else if let Ok(within) = with_timer(|| timeout(deadline, &mut self)) {
                // Unfinished look-ups fail below.
                let _ = within.await;
            }
        }
        self.results().collect()
    }

    /// The results, when all have finished, or the first without a key.
    pub(crate) async fn of_one_key(mut self) -> impl Iterator<Item = (usize, Found)> {
        poll_fn(|cx| {
            let all = Pin::new(&mut self).poll(cx);
            match self.0.first() {
                Some((_, LookUp::Done(Err(_)))) => Poll::Ready(()),
                _ => all,
            }
        })
        .await;
        self.results()
    }

    fn results(self) -> impl Iterator<Item = (usize, Found)> {
        let found = |look_up| match look_up {
            LookUp::Running(_) => Err(NoKey::LookUpFailed),
            LookUp::Done(found) => found,
        };
        let look_ups = self.0.into_iter();
        look_ups.map(move |(index, look_up)| (index, found(look_up)))
    }
}

/// `start`, or `Err` if the runtime has no timer, which tokio reports only by a panic.
pub(crate) fn with_timer<T>(start: impl FnOnce() -> T) -> thread::Result<T> {
    // A timer that does not start leaves no state behind.
    catch_unwind(AssertUnwindSafe(start))
}

/// Ready when all have finished.
impl Future for LookUps {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut ended = true;
        for (_, look_up) in &mut self.0 {
            let LookUp::Running(running) = look_up else {
                continue;
            };
            match Pin::new(running).poll(cx) {
                Poll::Ready(found) => *look_up = LookUp::Done(found),
                Poll::Pending => ended = false,
            }
        }
        if ended {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}
