//! Calls whose answers no request waits for.

use std::sync::Arc;

use tokio::sync::watch;

/// How many calls are in flight whose replies must be processed, or that no request waits for.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlightCalls(Arc<watch::Sender<usize>>);

/// A call that is under way until this is dropped.
#[derive(Debug)]
pub(super) struct InFlightCall(Arc<watch::Sender<usize>>);

impl InFlightCalls {
    pub(super) fn begin(&self) -> InFlightCall {
        self.0.send_modify(|count| *count += 1);
        InFlightCall(Arc::clone(&self.0))
    }

    /// Waits until none is.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub(super) async fn idle(&self) {
        // It fails where the sender is gone, which is here.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for InFlightCall {
    fn drop(&mut self) {
        // Each has added one.
        self.0.send_modify(|count| *count -= 1);
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
