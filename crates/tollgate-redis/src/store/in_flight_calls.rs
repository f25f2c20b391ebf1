//! Calls whose answers no request waits for.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::Notify;

/// How many calls are in flight whose replies must be processed, or that no request waits for.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlightCalls(Arc<Calls>);

#[derive(Debug, Default)]
struct Calls {
    count: AtomicUsize,
    is_idle: Notify,
}

/// A call that is under way until this is dropped.
#[derive(Debug)]
pub(super) struct InFlightCall(Arc<Calls>);

impl InFlightCalls {
    pub(super) fn begin(&self) -> InFlightCall {
        self.0.count.fetch_add(1, Ordering::AcqRel);
        InFlightCall(Arc::clone(&self.0))
    }

    /// Waits until none is.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub(super) async fn idle(&self) {
        loop {
            // Registered before the check, so that no notification is missed between the two.
            let is_idle = self.0.is_idle.notified();
            if self.0.count.load(Ordering::Acquire) == 0 {
                return;
            }
            is_idle.await;
        }
    }
}

impl Drop for InFlightCall {
    fn drop(&mut self) {
        // Each has added one.
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.is_idle.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::Future, pin::pin, task::Context};

    use super::*;

    #[test]
    fn it_is_idle_once_all_calls_have_ended() {
        let in_flight_calls = InFlightCalls::default();
        let (one, other) = (in_flight_calls.begin(), in_flight_calls.begin());
        let mut idle = pin!(in_flight_calls.idle());
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(idle.as_mut().poll(&mut cx).is_pending());
        drop(one);
        assert!(idle.as_mut().poll(&mut cx).is_pending());
        drop(other);
        assert!(idle.as_mut().poll(&mut cx).is_ready());
    }
}
