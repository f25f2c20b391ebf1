//! The tabs that look, and what they hear.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tokio::sync::{Notify, watch};

/// How many tabs there may be.
const MOST: usize = 64;

/// What a tab shows of each sample.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shown {
    Overview,
    Rules,
    /// Whether the rules have changed.
    Version,
}

impl Shown {
    pub(crate) const ALL: [Self; 3] = [Self::Overview, Self::Rules, Self::Version];
}

/// The tabs. One that reads slowly misses samples, and nobody waits for it.
#[derive(Debug, Default)]
pub(crate) struct Viewers {
    latest: [watch::Sender<Bytes>; Shown::ALL.len()],
    first: Notify,
    is_awake: AtomicBool,
}

impl Viewers {
    /// Hears of the next samples. `None`: too many do.
    pub(crate) fn subscribe(&self, shown: Shown) -> Option<watch::Receiver<Bytes>> {
        let tabs = self.latest.iter().map(watch::Sender::receiver_count);
        if tabs.sum::<usize>() >= MOST {
            return None;
        }
        let receiver = self.latest[shown as usize].subscribe();
        if !self.is_awake.swap(true, Ordering::AcqRel) {
            self.first.notify_one();
        }
        Some(receiver)
    }

    pub(crate) fn are_there(&self) -> bool {
        Shown::ALL.into_iter().any(|shown| self.show(shown))
    }

    /// Whether any tab shows this.
    pub(crate) fn show(&self, shown: Shown) -> bool {
        self.latest[shown as usize].receiver_count() > 0
    }

    /// Waits for the first tab.
    pub(crate) async fn come(&self) {
        self.is_awake.store(false, Ordering::Release);
        if !self.are_there() {
            self.first.notified().await;
        }
    }

    pub(crate) fn send(&self, shown: Shown, sample: Bytes) {
        self.latest[shown as usize].send_replace(sample);
    }
}
