//! The tabs that look, and what they hear.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tokio::sync::{Notify, watch};

/// How many tabs there may be.
const MOST: usize = 64;

/// The tabs. One that reads slowly misses samples, and nobody waits for it.
#[derive(Debug, Default)]
pub(crate) struct Viewers {
    latest: watch::Sender<Bytes>,
    first: Notify,
    is_awake: AtomicBool,
}

impl Viewers {
    /// Hears of the next samples. `None`: too many do.
    pub(crate) fn subscribe(&self) -> Option<watch::Receiver<Bytes>> {
        if self.latest.receiver_count() >= MOST {
            return None;
        }
        let receiver = self.latest.subscribe();
        if !self.is_awake.swap(true, Ordering::AcqRel) {
            self.first.notify_one();
        }
        Some(receiver)
    }

    pub(crate) fn are_there(&self) -> bool {
        self.latest.receiver_count() > 0
    }

    /// Waits for the first tab.
    pub(crate) async fn come(&self) {
        self.is_awake.store(false, Ordering::Release);
        if !self.are_there() {
            self.first.notified().await;
        }
    }

    pub(crate) fn send(&self, sample: Bytes) {
        self.latest.send_replace(sample);
    }
}
