//! Calls whose answers no request waits for.

use std::sync::Arc;

use tokio::sync::watch;

/// How many calls are under way whose answers say something that must not be missed, or that nobody waits for.
#[derive(Clone, Debug)]
pub(super) struct UnderWay(Arc<watch::Sender<usize>>);

/// A call that is under way until this is dropped.
#[derive(Debug)]
pub(super) struct OnItsWay(Arc<watch::Sender<usize>>);

impl UnderWay {
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    pub(super) fn begin(&self) -> OnItsWay {
        self.0.send_modify(|calls| *calls += 1);
        OnItsWay(Arc::clone(&self.0))
    }

    /// Waits until none is.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub(super) async fn idle(&self) {
        // It ends with an error when the sender is gone, which this holds.
        let _ = self.0.subscribe().wait_for(|calls| *calls == 0).await;
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        // Each has added one.
        self.0.send_modify(|calls| *calls = calls.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use std::{future::Future, pin::pin, task::Context};

    use super::*;

    #[test]
    fn it_is_idle_once_all_calls_have_ended() {
        let under_way = UnderWay::new();
        let (one, other) = (under_way.begin(), under_way.begin());
        let mut idle = pin!(under_way.idle());
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(idle.as_mut().poll(&mut cx).is_pending());
        drop(one);
        assert!(idle.as_mut().poll(&mut cx).is_pending());
        drop(other);
        assert!(idle.as_mut().poll(&mut cx).is_ready());
    }
}
