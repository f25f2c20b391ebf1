//! The look-ups of one request: all at the same time, under one deadline.

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

use crate::key::NoKey;

/// How long the look-ups of a request may take, unless the layer says otherwise.
pub(crate) const DEADLINE: Duration = Duration::from_millis(200);

/// A key, or why there is none.
pub(crate) type Found = Result<KeyBuf, NoKey>;

/// Look-ups with the places of their checks.
#[derive(Debug, Default)]
pub(crate) struct LookUps(Vec<(usize, LookUp)>);

#[derive(Debug)]
enum LookUp {
    Running(Pending<Found>),
    Done(Found),
}

impl LookUps {
    /// Adds one. It does not run yet.
    pub(crate) fn push(&mut self, place: usize, look_up: Pending<Found>) {
        self.0.push((place, LookUp::Running(look_up)));
    }

    /// Whether there is none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What they have found, in the order in which they were added. One that has not ended by the deadline is dropped, and
    /// has failed.
    ///
    /// The deadline begins when there is something to wait for. Outside of a tokio runtime there is none. In a runtime that
    /// was built without `enable_time`, look-ups that have to wait fail at once.
    pub(crate) async fn within(mut self, deadline: Duration) -> Vec<(usize, Found)> {
        let all = poll_fn(|cx| Poll::Ready(Pin::new(&mut self).poll(cx).is_ready())).await;
        if !all {
            if Handle::try_current().is_err() {
                (&mut self).await;
            } else if let Ok(within) = with_timer(|| timeout(deadline, &mut self)) {
                // What has not ended by then is sorted out below.
                let _ = within.await;
            }
        }
        let found = |look_up| match look_up {
            LookUp::Running(_) => Err(NoKey::LookUpFailed),
            LookUp::Done(found) => found,
        };
        let look_ups = self.0.into_iter();
        look_ups
            .map(|(place, look_up)| (place, found(look_up)))
            .collect()
    }
}

/// `start`, or `Err` where the runtime has no timer: tokio tells only by a panic, whose message says what to call.
fn with_timer<T>(start: impl FnOnce() -> T) -> thread::Result<T> {
    // What a timer that does not start leaves behind is nothing.
    catch_unwind(AssertUnwindSafe(start))
}

/// Ready when all have ended.
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
